# SPDX-License-Identifier: Apache-2.0
"""The table holds every operator that the importers of the demo models write."""

from __future__ import annotations

from dpfedge.testing.operators import TABLE

# what `dpfedge compile` found in the voice and camera packages; their random and blocked operators are the CPU's own
DEMO = """
Add And ArgMax Cast Ceil Clip Concat ConstantOfShape Conv ConvTranspose CumSum DequantizeLinear Div
DynamicQuantizeLinear Equal Exp Expand Gather GatherElements GatherND Gemm GreaterOrEqual InstanceNormalization LSTM
LayerNormalization LeakyRelu Less LessOrEqual MatMul Mul Neg NonZero Not Pad Pow Range ReduceMax ReduceMean ReduceSum
Relu Reshape ScatterND Shape Sigmoid SimplifiedLayerNormalization Slice Softmax Softplus Split Sqrt Squeeze Sub Tanh
Transpose Unsqueeze Where DynamicQuantizeMatMul FusedConv FusedMatMul GatherBlockQuantized Gelu GroupQueryAttention
MatMulIntegerToFloat MatMulNBits MultiHeadAttention QuickGelu RotaryEmbedding SkipSimplifiedLayerNormalization
"""


def test_table__has_every_operator_of_the_demo() -> None:
    """By name; `RandomNormalLike` has no right answer."""
    assert {line.op.rpartition("/")[2] for line in TABLE} >= set(DEMO.split())


def test_table__leaves_nothing_out_by_mistake() -> None:
    """Constants and fed arrays are inputs of their line."""
    for line in TABLE:
        assert {*line.constant, *line.fed} <= set(line.inputs), line.op
