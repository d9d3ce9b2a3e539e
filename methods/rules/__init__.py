"""The literal map from a stock layer to the class that keeps less. Exact types: a subclass may compute otherwise."""

from timm.layers import BatchNormAct2d
from torch import nn

from methods.rules.convolution import KeptConv2d
from methods.rules.kept import Kept
from methods.rules.norm import KeptBatchNorm2d, KeptBatchNormAct2d
from methods.rules.pooling import KeptAvgPool2d, KeptMaxPool2d
from methods.rules.relu import KeptReLU

Rules = dict[type[nn.Module], type[Kept]]

OPERANDS: Rules = {nn.Conv2d: KeptConv2d, nn.ReLU: KeptReLU}
NORMS: Rules = {nn.BatchNorm2d: KeptBatchNorm2d, BatchNormAct2d: KeptBatchNormAct2d}
POOLS: Rules = {nn.AvgPool2d: KeptAvgPool2d, nn.MaxPool2d: KeptMaxPool2d}
