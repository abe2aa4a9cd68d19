# SPDX-License-Identifier: Apache-2.0
"""Lowering for a GPU at compile time: an ONNX graph in, one that the CUDA provider runs whole, with why, out.

What the provider has no kernel for is rewritten where that is exact enough, else refused by name. Fusions wait for the
provider. It chooses no weight format: that is the compiler's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import onnx
from dpfedge_cpu.branches import graphs
from dpfedge_cpu.dequantise import dequantise
from dpfedge_cpu.halve import halve
from dpfedge_cpu.lower import lower_plain
from onnx import TensorProto, helper

from dpfedge.backend.api import LoweredGraph, LowerRequest
from dpfedge.errors import Unsupported
from dpfedge_cuda.capture import mark

__all__ = ["lower"]

_MICROSOFT = "com.microsoft"
_OLDEST = 53
_ARCH = re.compile(r"sm_(\d{2,3})")
# microsoft/onnxruntime: docs/OperatorKernels.md, CUDAExecutionProvider
_OPERATORS = frozenset(
    {"Abs", "Add", "And", "ArgMax", "ArgMin", "Attention", "AveragePool", "BatchNormalization", "Cast", "Ceil",
     "Clip", "Compress", "Concat", "Constant", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "CumSum",
     "DepthToSpace", "DequantizeLinear", "Div", "Dropout", "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand",
     "EyeLike", "Flatten", "Floor", "GRU", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm",
     "GlobalAveragePool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "GridSample", "HardSigmoid", "HardSwish",
     "Identity", "If", "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LSTM", "LayerNormalization",
     "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "Loop", "MatMul", "Max", "MaxPool", "Min", "Mod",
     "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "PRelu", "Pad", "Pow", "QuantizeLinear", "RMSNormalization",
     "RNN", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range", "Reciprocal",
     "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
     "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Resize", "ReverseSequence", "RoiAlign",
     "RotaryEmbedding", "Round", "Scan", "ScatterElements", "ScatterND", "Selu", "Shape", "Shrink", "Sigmoid",
     "Sign", "SimplifiedLayerNormalization", "Sin", "Size", "Slice", "Softmax", "Softplus", "Softsign",
     "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "TensorScatter", "ThresholdedRelu", "Tile",
     "TopK", "Transpose", "Trilu", "Unsqueeze", "Upsample", "Where", "Xor"}
)  # fmt: skip
_MICROSOFTS = frozenset(
    {"Attention", "BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "DecoderMaskedMultiHeadAttention",
     "DequantizeLinear", "EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedMatMul",
     "GatherBlockQuantized", "Gelu", "GroupNorm", "GroupQueryAttention", "Irfft", "MatMulBnb4", "MatMulNBits",
     "MoE", "MultiHeadAttention", "PackedMultiHeadAttention", "QMoE", "QuantizeLinear", "QuickGelu", "Rfft",
     "RotaryEmbedding", "SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
     "TransposeMatMul"}
)  # fmt: skip


def lower(request: LowerRequest) -> LoweredGraph:
    """`request.onnx` for the GPU `request.arch` (`sm_90`); Unsupported names what it cannot run."""
    match = _ARCH.fullmatch(request.arch)
    if match is None or int(match[1]) < _OLDEST:
        raise Unsupported(
            "no GPU of this backend", where=f"graph {request.name}", found=request.arch,
            allowed=f"sm_{_OLDEST} and later",
        )  # fmt: skip
    coarse: list[Literal["dequantised", "half", "tf32"]] = []
    lowered = lower_plain(request, partial(_rewrite, request, coarse))
    return replace(lowered, arithmetic=min(coarse)) if coarse else lowered  # the coarser, the earlier


def _rewrite(
    request: LowerRequest, coarse: list[Literal["dequantised", "half", "tf32"]], model: onnx.ModelProto
) -> Sequence[tuple[str, str]]:
    decisions = []
    if count := halve(model):
        rule = f"{request.arch} multiplies float16 and sums in float32; weights are kept in 16 bits; 65504 is the most"
        decisions.append((f"fp16={count} products", rule))
        coarse.append("half")
    if count := dequantise(model):
        rule = "the CUDA provider has no kernel that quantises activations by the row; weights become floats"
        decisions.append((f"int8=dequantised, {count} products", rule))
        coarse.append("dequantised")
    if count := _attend_in_half(model):
        rule = "the CUDA provider has this attention for 16-bit floats only; it is cast to and fro"
        decisions.append((f"attention=f16, {count}×GroupQueryAttention", rule))
        coarse.append("half")
    if request.options.get("tf32"):
        coarse.append("tf32")
    tf32 = "the graph asks for it" if request.options.get("tf32") else "sums stay in the graph's own format"
    decisions.append((f"tf32={'on' if request.options.get('tf32') else 'off'}", tf32))
    _check_operators(request.name, model)
    decisions.append(mark(model))
    return decisions


def _check_operators(name: str, model: onnx.ModelProto) -> None:
    kinds = _kinds(model)
    lacking = Counter(
        node.op_type
        for graph in graphs(model.graph)
        for node in graph.node
        if node.op_type not in (_MICROSOFTS if node.domain == _MICROSOFT else _OPERATORS)
        or (node.op_type == "Pad" and kinds.get(node.input[0], TensorProto.FLOAT) not in _PADDED)
    )
    if lacking:
        raise Unsupported(
            "the CUDA provider has no kernel for operators of this graph",
            where=f"graph {name}",
            found=", ".join(f"{count}×{op}" for op, count in sorted(lacking.items())),
            remedy="place the stage on the CPU backend",
        )


_PADDED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BOOL)


def _kinds(model: onnx.ModelProto) -> dict[str, int]:
    """Value → dtype, as far as ONNX can tell; asked only where a dtype decides."""
    if not any(node.op_type == "Pad" for node in model.graph.node):
        return {}
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.input, *graph.value_info)
    kinds = {value.name: int(value.type.tensor_type.elem_type) for value in values}
    return kinds | {tensor.name: int(tensor.data_type) for tensor in graph.initializer}


_ATTENDED = (0, 1, 2, 3, 4, 7, 8, 10, 11)  # inputs of GroupQueryAttention that hold floats


def _attend_in_half(model: onnx.ModelProto) -> int:
    """Casts around GroupQueryAttention over f32; how many there are. Caches keep the dtype that their ports have."""
    halves = _halves(model.graph)
    count = 0
    nodes = []
    for node in model.graph.node:
        if node.op_type != "GroupQueryAttention" or node.domain != _MICROSOFT or node.input[0] in halves:
            nodes.append(node)
            continue
        count += 1
        for place in _ATTENDED:
            if place < len(node.input) and node.input[place]:
                half = f"{node.output[0]}.half.{place}"
                nodes.append(_cast(node.input[place], half, TensorProto.FLOAT16))
                node.input[place] = half
        results = [(index, name) for index, name in enumerate(node.output) if name]
        for index, name in results:
            node.output[index] = f"{name}.half"
        nodes.append(node)
        nodes += [_cast(f"{name}.half", name, TensorProto.FLOAT) for _, name in results]
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return count


def _halves(graph: onnx.GraphProto) -> set[str]:
    """Values known to be 16-bit floats: inputs, constants, and what a Cast or a node over halves makes."""
    half = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    known = {tensor.name for tensor in graph.initializer if tensor.data_type in half}
    known |= {value.name for value in graph.input if value.type.tensor_type.elem_type in half}
    for node in graph.node:
        if node.op_type == "Cast":
            made = any(attribute.name == "to" and attribute.i in half for attribute in node.attribute)
        else:
            made = bool(node.input) and node.input[0] in known
        if made:
            known.update(node.output)
    return known


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], name=target, to=to)
