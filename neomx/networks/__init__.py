"""Networks and parts of networks as symbols. Programs use them as functions of `mx.sym`.

    data = mx.sym.Variable("data")
    net = mx.sym.Resnet(data, depth=18, num_classes=10)
    net = mx.sym.SoftmaxOutput(net, name="softmax")          # for Module, FeedForward, SymbolBlock and files

Those with parameters are the graphs of Gluon's layers and networks: with the same weights they give the same numbers.
"""

from .augment import Mixup, RandomFlip, RandomRotation
from .layers import LSTM, DeConvolution, Leading, MultiHeadAttention, SelfAttention
from .models import GPT2, VGG, Bert, Resnet
from .quantization import dequantize, quantize
from .signals import Fft, HammingWindow, Ifft

__all__ = [
    "Bert",
    "DeConvolution",
    "Fft",
    "GPT2",
    "HammingWindow",
    "Ifft",
    "LSTM",
    "Leading",
    "Mixup",
    "MultiHeadAttention",
    "RandomFlip",
    "RandomRotation",
    "Resnet",
    "SelfAttention",
    "VGG",
    "dequantize",
    "quantize",
]
