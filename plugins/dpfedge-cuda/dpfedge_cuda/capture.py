# SPDX-License-Identifier: Apache-2.0
"""Whether a graph's kernels may be captured and replayed: a lowered graph in, the reason why not, or none, out.

A replay repeats what the host decided while capturing. Where a value of the request decides on the host (a shape, a
branch, an attention's length), or a generator advances there, a replay would give the answer of another request. It
assumes that ports have one shape; `loading.py` knows that.
"""

from __future__ import annotations

import onnx

__all__ = ["MARK", "mark", "obstacle"]

MARK = "dpfedge.cuda_graph"
"""Key in the graph's metadata of what may be captured."""

_NEVER = frozenset(
    {"Bernoulli", "Compress", "Dropout", "If", "Loop", "Multinomial", "NonZero", "RandomNormal", "RandomNormalLike",
     "RandomUniform", "RandomUniformLike", "Scan", "SequenceAt", "Unique"}
)  # fmt: skip
# microsoft/onnxruntime: InputMemoryType(OrtMemTypeCPUInput) of the CUDA kernels; None: every input but the first
_HOST: dict[str, tuple[int, ...] | None] = {
    "Attention": (6,), "Clip": None, "ConstantOfShape": (0,), "CumSum": (1,), "DecoderMaskedMultiHeadAttention": None,
    "Expand": (1,), "EyeLike": (), "GroupQueryAttention": (5, 6), "MultiHeadAttention": (8,), "OneHot": (1,),
    "Pad": (1, 3), "Range": (0, 1, 2), "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,), "ReduceMax": (1,), "ReduceMean": (1,), "ReduceMin": (1,), "ReduceProd": (1,),
    "ReduceSum": (1,), "ReduceSumSquare": (1,), "Reshape": (1,), "Resize": (1, 2, 3), "ReverseSequence": (1,),
    "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,),
    "Upsample": (1,),
}  # fmt: skip
_CONSTANT = frozenset({"Shape", "Size"})  # of ports of one shape, and of what follows from them


def obstacle(graph: onnx.GraphProto) -> str | None:
    """Why `graph` must not be captured; None when it may."""
    constants = {tensor.name for tensor in graph.initializer}
    told = {value.name for value in graph.input if value.name not in constants}
    for node in graph.node:
        if node.op_type in _NEVER:
            return f"{node.op_type} decides on the host"
        places = _HOST.get(node.op_type, ())
        reads = node.input[1:] if places is None else [node.input[one] for one in places if one < len(node.input)]
        if any(name in told for name in reads):
            return f"{node.op_type} reads a value of the request on the host"
        if node.op_type not in _CONSTANT and any(name in told for name in node.input):
            told.update(node.output)
    return None


def mark(model: onnx.ModelProto) -> tuple[str, str]:
    """Write into `model` that it may be captured, if so; the decision with its rule."""
    reason = obstacle(model.graph)
    if reason is not None:
        return "cuda_graph=no", reason
    model.metadata_props.add(key=MARK, value="1")
    return "cuda_graph=where shapes are fixed", "nothing of a request decides on the host"
