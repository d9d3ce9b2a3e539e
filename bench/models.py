"""The CIFAR networks of Chakrabarti & Moseley 2019, by name in timm once this module is imported.

Pre-activation bottleneck ResNets (He et al. 2016) of 9 r + 2 layers whose shortcuts have no parameters. Every layer is
a stock torch module of its own, called once in a forward pass, so that methods can switch it; no norm's input is
changed in place.
"""

import math
from typing import Any

from timm.layers import create_classifier
from timm.models import checkpoint_seq, register_model
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-3  # of every norm (public code of the paper)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPS)


class Shortcut(nn.Module):
    """Average pooling by the stride, then zero channels in front and behind: no parameters."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        # ceil: an odd map shrinks as the strided convolution beside it does
        self.pool = nn.AvgPool2d(stride, ceil_mode=True) if stride > 1 else nn.Identity()
        before = (out - channels) // 2
        self.padding = (0, 0, 0, 0, before, out - channels - before)

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(self.pool(x), self.padding) if any(self.padding) else self.pool(x)


class Bottleneck(nn.Module):
    """Three BN-ReLU-conv layers and a shortcut: of the sum before the norm, or, in the first block, after the ReLU."""

    def __init__(self, channels: int, width: int, stride: int, first: bool) -> None:
        super().__init__()
        out = 4 * width
        self.first = first
        self.norm1, self.act1 = _norm(channels), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels, width, 1, stride, bias=False)
        self.norm2, self.act2 = _norm(width), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm3, self.act3 = _norm(width), nn.ReLU(inplace=True)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.shortcut = Shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.norm1(x))
        residual = y if self.first else x
        y = self.conv1(y)
        y = self.conv2(self.act2(self.norm2(y)))
        y = self.conv3(self.act3(self.norm3(y)))
        y += self.shortcut(residual)  # autograd keeps no convolution's output
        return y


class PreActResNet(nn.Module):
    """Images (N, in_chans, H, W) of any size to logits (N, num_classes), with timm's interface.

    ``depth`` is 9 r + 2 for r blocks in each of the three stages of ``width``, twice and four times ``width``;
    ValueError otherwise. Kernels start as N(0, 2 / fan-in), the classifier as N(0, 1 / fan-in).
    """

    def __init__(
        self, depth: int, width: int = 16, num_classes: int = 1000, in_chans: int = 3, global_pool: str = "avg"
    ) -> None:
        super().__init__()
        repeats, rest = divmod(depth - 2, 9)
        if rest or repeats < 1:
            nearest = 9 * max(1, round((depth - 2) / 9)) + 2
            raise ValueError(f"depth {depth} is not 9 r + 2; the nearest that is: {nearest}")
        self.num_classes, self.in_chans, self.grad_checkpointing = num_classes, in_chans, False
        self.stem = nn.Conv2d(in_chans, width, 3, padding=1, bias=False)
        self.stages = nn.Sequential(*(self._stage(stage, width, repeats) for stage in range(3)))
        self.num_features = self.head_hidden_size = 16 * width
        self.norm, self.act = _norm(self.num_features), nn.ReLU(inplace=True)
        self.reset_classifier(num_classes, global_pool)
        for module in self.stages.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.kaiming_normal_(self.stem.weight)

    @staticmethod
    def _stage(stage: int, width: int, repeats: int) -> nn.Sequential:
        inner, before = width * 2**stage, width * 2 ** (stage + 1)
        first = Bottleneck(before if stage else width, inner, 2 if stage else 1, first=stage == 0)
        return nn.Sequential(first, *(Bottleneck(4 * inner, inner, 1, first=False) for _ in range(repeats - 1)))

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block in the backward pass."""
        self.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        """The last layer: nn.Linear, or nn.Identity without classes."""
        return self.fc

    def reset_classifier(self, num_classes: int, global_pool: str = "avg") -> None:
        """A new last layer for ``num_classes``; 0 leaves the pooled features (N, 16 width)."""
        self.num_classes = num_classes
        self.global_pool, self.fc = create_classifier(self.num_features, num_classes, pool_type=global_pool)
        if num_classes:
            nn.init.normal_(self.fc.weight, std=math.sqrt(1 / self.fc.in_features))
            nn.init.zeros_(self.fc.bias)

    def forward_features(self, x: Tensor) -> Tensor:
        """The last norm's rectified output (N, 16 width, H / 4, W / 4)."""
        x = self.stem(x)
        for stage in self.stages:
            recompute = self.grad_checkpointing and self.training
            x = checkpoint_seq(stage, x) if recompute else stage(x)
        return self.act(self.norm(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits, or with ``pre_logits`` to pooled features."""
        x = self.global_pool(x)
        return x if pre_logits else self.fc(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def _create(depth: int, pretrained: bool, width: int = 16, **options: Any) -> PreActResNet:
    if pretrained:
        raise ValueError(f"preact_resnet{depth} has no pretrained weights; pass pretrained=False")
    for timm_only in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):
        options.pop(timm_only, None)
    return PreActResNet(depth, width, **options)


@register_model
def preact_resnet11(pretrained: bool = False, **options: Any) -> PreActResNet:
    """r = 1, the smallest: many seeds within an hour on 2 cores; not in the paper."""
    return _create(11, pretrained, **options)


@register_model
def preact_resnet20(pretrained: bool = False, **options: Any) -> PreActResNet:
    """r = 2: small enough for a laptop; not in the paper."""
    return _create(20, pretrained, **options)


@register_model
def preact_resnet29(pretrained: bool = False, **options: Any) -> PreActResNet:
    """r = 3; not in the paper."""
    return _create(29, pretrained, **options)


@register_model
def preact_resnet164(pretrained: bool = False, **options: Any) -> PreActResNet:
    """r = 18: the paper's accuracies on CIFAR."""
    return _create(164, pretrained, **options)


@register_model
def preact_resnet254(pretrained: bool = False, **options: Any) -> PreActResNet:
    """r = 28: the paper's largest batches."""
    return _create(254, pretrained, **options)


@register_model
def preact_resnet488(pretrained: bool = False, **options: Any) -> PreActResNet:
    """r = 54: the paper's largest batches."""
    return _create(488, pretrained, **options)


@register_model
def preact_resnet1001(pretrained: bool = False, **options: Any) -> PreActResNet:
    """r = 111: the paper's largest batches."""
    return _create(1001, pretrained, **options)


@register_model
def preact_resnet1001x4(pretrained: bool = False, **options: Any) -> PreActResNet:
    """r = 111, every layer four times as wide: the paper's largest batches."""
    return _create(1001, pretrained, width=64, **options)
