# SPDX-License-Identifier: Apache-2.0
"""What MIGraphX takes of ONNX: a graph in, the operators it will never take out, before anybody has the hardware.

The list is the execution provider's own, of onnxruntime-migraphx 1.27.1 (migraphx_execution_provider.cc and the wheel);
a provider for ROCm 7.2 asks MIGraphX itself, which has these and more. Of a graph with more than ten nodes it lacks a
provider takes nothing at all, and tells nobody: so one is one too many here.
"""

from __future__ import annotations

from collections import Counter

import onnx
from dpfedge_cpu.branches import graphs

__all__ = ["OPERATORS", "lacking"]

_NAMES = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh ATen Attention AveragePool BatchNormalization BiasGelu
    Cast Ceil Celu Clip Concat Constant ConstantFill ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh CumSum
    DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike FastGelu
    Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual
    GroupNorm GroupNormalization GroupQueryAttention HardSigmoid HardSwish Identity If ImageScaler
    InstanceNormalization IsNan LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop
    LpNormalization MatMul MatMulInteger MatMulNBits Max MaxPool Mean Min Mod Mul MultiHeadAttention Multinomial Neg
    NegativeLogLikelihoodLoss NhwcConv NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow QLinearAdd
    QLinearAveragePool QLinearConv QLinearGlobalAveragePool QLinearMatMul QuantizeLinear QuickGelu RNN RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence Roialign
    RotaryEmbedding Round Scatter ScatterElements ScatterND Selu Shape Sigmoid Sign SimplifiedLayerNormalization Sin
    Sinh Size SkipLayerNormalization SkipSimplifiedLayerNormalization Slice Softmax SoftmaxCrossEntropyLoss Softplus
    Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze
    Upsample Where Xor
"""
OPERATORS = frozenset(_NAMES.split())


def lacking(model: onnx.ModelProto) -> dict[str, int]:
    """Operator → how many of it, of those MIGraphX lacks; branches of If and Loop count, too."""
    operators = (node.op_type for graph in graphs(model.graph) for node in graph.node)
    return dict(sorted(Counter(op for op in operators if op not in OPERATORS).items()))
