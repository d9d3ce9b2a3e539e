"""Gradient error of a method against exact at the same weights, beside the noise of the gradients between batches.

Chakrabarti & Moseley 2019, Fig. 4: an approximation matters little where its error is far below that noise.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bench.step import forward
from results.schema import GradientResult, LayerGradient

Gradients = dict[str, Tensor]


def gradients(model: nn.Module, images: Tensor, labels: Tensor) -> Gradients:
    """By parameter name, in float64; what has no gradient is left out."""
    model.zero_grad(set_to_none=True)
    forward(model, images, labels).backward()
    return {name: p.grad.double().flatten() for name, p in model.named_parameters() if p.grad is not None}


def measure(exact: nn.Module, method: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> GradientResult:
    """Both models hold the same weights; nothing is updated. At least two batches."""
    pairs = [(gradients(exact, *batch), gradients(method, *batch)) for batch in batches]
    names = list(pairs[0][0])
    kinds = {f"{path}.{name}".lstrip("."): type(layer).__name__ for path, layer in exact.named_modules()
             for name, _ in layer.named_parameters(recurse=False)}  # fmt: skip
    whole = _compare([(torch.cat([e[n] for n in names]), torch.cat([m[n] for n in names])) for e, m in pairs])
    layers = []
    for name in names:
        error, noise, cosine = _compare([(e[name], m[name]) for e, m in pairs])
        layers.append(
            LayerGradient(
                name=name,
                kind=kinds[name],
                elements=pairs[0][0][name].numel(),
                relative_error=error,
                sgd_noise=noise,
                cosine=cosine,
            )
        )
    error, noise, cosine = whole
    return GradientResult(
        batches=len(pairs), cosine=cosine, relative_error=error, sgd_noise=noise, layers=tuple(layers)
    )


def _compare(pairs: list[tuple[Tensor, Tensor]]) -> tuple[float, float, float]:
    """(squared error, squared deviation of exact between batches, both over exact's square; mean cosine)."""
    exact = torch.stack([e for e, _ in pairs])
    method = torch.stack([m for _, m in pairs])
    square = exact.square().sum()
    deviation = (exact - exact.mean(dim=0)).square().sum() * len(pairs) / max(len(pairs) - 1, 1)
    cosine = torch.nn.functional.cosine_similarity(exact, method, dim=1).mean()
    return float((method - exact).square().sum() / square), float(deviation / square), float(cosine)
