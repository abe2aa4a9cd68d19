# SPDX-License-Identifier: Apache-2.0
"""The table of operators: one line for each way the demo packages' graphs use an operator, and its neighbours.

Data only; `cases.py` says what a line means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper

from dpfedge.testing.cases import Op, Spec

__all__ = ["TABLE"]

_FLOATS = "f32 f16 f64"
_NUMBERS = "f32 f16 f64 i32 i64"
_ALL = "f32 f16 i32 i64 u8 i8 bool"
_RANDOM = np.random.default_rng(7)


def _ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def _scalar(value: float, kind: str) -> np.ndarray[Any, Any]:
    return np.array(value, kind)


def _codes(*shape: int, most: int = 255) -> np.ndarray[Any, Any]:
    return _RANDOM.integers(0, most + 1, shape).astype(np.uint8)


def _floats(*shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
    return (_RANDOM.standard_normal(shape) * scale).astype(np.float32)


def _branch(value: float) -> GraphProto:
    node = helper.make_node("Constant", [], ["chosen"], value_floats=[value, value])
    return helper.make_graph([node], f"branch{value}", [], [helper.make_tensor_value_info("chosen", 1, [2])])


def _elementwise() -> Iterator[Op]:
    pair: dict[str, Spec] = {"a": (2, 3, 4), "b": (3, 1)}
    for op in ("Add", "Sub", "Mul"):
        yield Op(op, pair, _NUMBERS)
    yield Op("Div", pair, _NUMBERS, low=0.5)
    yield Op("Pow", {"a": (2, 3), "b": (3,)}, "f32 f16 f64", low=0.2)
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        yield Op(op, pair, "f32 i32 i64")
    for op in ("And", "Or"):
        yield Op(op, pair, "bool")
    yield Op("Not", {"a": (2, 3)}, "bool")
    yield Op("Where", {"c": np.array([[True], [False]]), "a": (2, 3), "b": (3,)}, "f32 i64", fed=["c"])
    for op in ("Neg", "Abs"):
        yield Op(op, {"a": (2, 3)}, "f32 f16 f64 i64")
    for op in ("Exp", "Tanh", "Sigmoid", "Relu", "Softplus", "Erf", "LeakyRelu", "HardSigmoid", "HardSwish"):
        yield Op(op, {"a": (2, 7)}, "f32 f16")
    for op in ("Ceil", "Floor", "Cos", "Sin"):
        yield Op(op, {"a": (2, 7)}, "f32")
    for op in ("Sqrt", "Log", "Reciprocal"):
        yield Op(op, {"a": (2, 7)}, "f32 f16", low=0.1)
    yield Op("Clip", {"a": (2, 7), "least": _scalar(-0.5, "f4"), "most": _scalar(0.5, "f4")})
    yield Op("Cast", {"a": (2, 7)}, "i64 i32 bool u8", {"to": TensorProto.FLOAT}, title="to-f32")
    yield Op("Cast", {"a": (2, 7)}, "f32 i32", {"to": TensorProto.INT64}, title="to-i64")
    yield Op("Cast", {"a": (2, 7)}, "f32", {"to": TensorProto.FLOAT16}, title="to-f16", tolerance=1e-3)
    yield Op("Softmax", {"a": (2, 3, 5)}, "f32 f16", {"axis": -1})
    yield Op("CumSum", {"a": (2, 5), "axis": np.array(1, np.int32)}, "f32 i64")


def _shapes() -> Iterator[Op]:
    yield Op("Shape", {"a": (2, 3)}, _ALL)
    yield Op("Reshape", {"a": (2, 6), "to": _ints(3, -1)}, _ALL)
    yield Op("Squeeze", {"a": (2, 1, 3), "axes": _ints(1)}, "f32 i32 i64")
    yield Op("Unsqueeze", {"a": (2, 3), "axes": _ints(0, 2)}, "f32 i64 bool")
    yield Op("Transpose", {"a": (2, 3, 4)}, "f32 f16 i64 u8", {"perm": [2, 0, 1]})
    yield Op("Concat", {"a": (2, 3), "b": (2, 1)}, "f32 f16 i64", {"axis": 1})
    yield Op("Split", {"a": (2, 5), "sizes": _ints(2, 3)}, "f32 i64", {"axis": 1}, outputs=2)
    yield Op(
        "Slice", {"a": (4, 9), "from": _ints(1, 8), "to": _ints(4, 0), "axes": _ints(0, 1), "steps": _ints(1, -2)},
        "f32 i64",
    )  # fmt: skip
    yield Op("Expand", {"a": (3, 1), "to": _ints(2, 3, 4)}, "f32 i64 bool")
    yield Op("Identity", {"a": (2, 3)}, _ALL)
    yield Op("Tile", {"a": (2, 3), "times": _ints(2, 1)}, "f32 i64")
    yield Op("Gather", {"a": (5, 3), "at": _ints(4, 0, 4)}, "f32 f16 i64 u8", {"axis": 0}, fed=["at"])
    yield Op("GatherElements", {"a": (3, 4), "at": _ints(0, 3, 1).reshape(3, 1)}, "f32 i64", {"axis": 1}, fed=["at"])
    fewer = _ints(1, -1, 2, 0).reshape(2, 2)
    yield Op("GatherElements", {"a": (3, 4), "at": fewer}, "f32", {"axis": 0}, fed=["at"], title="fewer")
    yield Op("GatherND", {"a": (3, 4), "at": _ints(0, 3, 2, 1).reshape(2, 2)}, "f32 i64", fed=["at"])
    yield Op("ScatterND", {"a": (4, 3), "at": _ints(2, 0).reshape(2, 1), "new": (2, 3)}, "f32 i64", fed=["at"])
    yield Op("Pad", {"a": (2, 3), "by": _ints(0, 1, 1, 2)}, "f32 i64")
    yield Op("Pad", {"a": (2, 5), "by": _ints(0, 2, 0, 1)}, "f32", {"mode": "reflect"}, title="reflect")
    three = [np.array(value, np.int64) for value in (2, 9, 3)]
    yield Op("Range", dict(zip(("start", "limit", "delta"), three, strict=True)), "i64", fed=["limit"])
    parts = [_scalar(value, "f4") for value in (0.5, 2.6, 0.5)]
    yield Op("Range", dict(zip(("start", "limit", "delta"), parts, strict=True)), "f32", fed=["limit"])
    for taken in (True, False):
        yield Op("If", {"c": np.array(taken)}, "bool", {"then_branch": _branch(1.0), "else_branch": _branch(-1.0)},
                 fed=["c"], title=str(taken).lower())  # fmt: skip
    yield Op("ConstantOfShape", {"shape": _ints(2, 3)}, "f32", fed=["shape"])
    yield Op("NonZero", {"a": (3, 4)}, "f32 bool i64")
    reduce: dict[str, Spec] = {"a": (2, 3, 5), "axes": _ints(1, 2)}
    for op, dtypes in (("ReduceMean", "f32"), ("ReduceMax", "f32 i64"), ("ReduceMin", "f32")):
        yield Op(op, reduce, dtypes, {"keepdims": 1})
    yield Op("ReduceSum", reduce, "f32 i64", {"keepdims": 0})
    yield Op("ArgMax", {"a": (2, 9)}, "f32", {"axis": 1, "keepdims": 0})


def _networks() -> Iterator[Op]:
    yield Op("MatMul", {"a": (2, 3, 8), "w": (8, 40)}, _FLOATS, constant=["w"])
    yield Op("MatMul", {"a": (2, 3, 8), "b": (2, 8, 5)}, "f32 f16", title="both-fed")
    yield Op("Gemm", {"a": (3, 8), "w": (40, 8), "c": (40,)}, "f32 f16", {"transB": 1}, constant=["w", "c"])
    yield Op("Conv", {"x": (1, 4, 19), "w": (6, 4, 3), "b": (6,)}, "f32 f16", {"pads": [1, 1]}, ["w", "b"], title="1d")
    two = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    yield Op("Conv", {"x": (1, 3, 9, 8), "w": (16, 3, 3, 3)}, "f32", two, ["w"])
    yield Op("Conv", {"x": (1, 8, 9, 8), "w": (8, 1, 3, 3)}, "f32", {"group": 8}, ["w"], title="grouped")
    yield Op("Conv", {"x": (1, 4, 30), "w": (4, 4, 3)}, "f32", {"dilations": [3]}, ["w"], title="dilated")
    yield Op("ConvTranspose", {"x": (1, 6, 7), "w": (6, 4, 4), "b": (4,)}, "f32", {"strides": [2], "pads": [1, 1]},
             ["w", "b"], title="1d")  # fmt: skip
    yield Op("ConvTranspose", {"x": (1, 3, 4, 5), "w": (3, 2, 2, 2)}, "f32", {"strides": [2, 2]}, ["w"])
    yield Op("LSTM", {"x": (3, 1, 6), "w": (1, 16, 6), "r": (1, 16, 4), "b": (1, 32), "_": (), "h": (1, 1, 4),
                      "c": (1, 1, 4)}, "f32", {"hidden_size": 4}, ["w", "r", "b"], outputs=3)  # fmt: skip
    yield Op("LayerNormalization", {"x": (2, 3, 8), "scale": (8,), "b": (8,)}, "f32 f16", {"axis": -1}, ["scale", "b"])
    yield Op("InstanceNormalization", {"x": (1, 4, 9), "scale": (4,), "b": (4,)}, "f32", {}, ["scale", "b"])
    norm = {name: np.abs(_floats(4)) + np.float32(0.5) for name in ("scale", "b", "mean", "var")}
    yield Op("BatchNormalization", {"x": (1, 4, 5, 3), **norm}, "f32")
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Op("MaxPool", {"x": (1, 3, 6, 4)}, "f32", pool)
    yield Op("AveragePool", {"x": (1, 3, 6, 4)}, "f32", pool)
    yield Op("GlobalAveragePool", {"x": (1, 3, 6, 4)}, "f32")
    yield Op("Resize", {"x": (1, 2, 3, 4), "_": (), "scales": np.array([1, 1, 2, 2], np.float32)}, "f32",
             {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})  # fmt: skip


def _quantised() -> Iterator[Op]:
    yield Op("DynamicQuantizeLinear", {"x": (3, 8)}, "f32", outputs=3, tolerance=5e-3)
    scale, zero = _scalar(0.05, "f4"), _scalar(120, "u1")
    yield Op("QuantizeLinear", {"x": (3, 8), "scale": scale, "zero": zero}, "f32", tolerance=5e-3)
    yield Op("DequantizeLinear", {"x": (3, 8), "scale": scale, "zero": zero}, "u8", tolerance=1e-6)
    # 7 bits: products of 8-bit numbers may saturate on x86 without VNNI
    yield Op("MatMulInteger", {"a": _codes(3, 8), "w": _codes(8, 16, most=127), "az": zero,
                             "wz": _scalar(64, "u1")},
             "u8", fed=["a"])  # fmt: skip
    matrix: dict[str, Spec] = {"b": _codes(16, 24, most=127), "bs": _scalar(0.02, "f4"), "bz": _scalar(64, "u1")}
    yield Op("microsoft/DynamicQuantizeMatMul", {"a": (3, 16), **matrix}, "f32", tolerance=1e-2)
    yield Op("microsoft/MatMulIntegerToFloat",
             {"a": _codes(3, 16), "b": matrix["b"], "as": scale, "bs": matrix["bs"], "az": zero, "bz": matrix["bz"],
              "bias": _floats(24)}, "f32", fed=["a"])  # fmt: skip
    for bits, width in ((4, 16), (8, 32)):
        blocks = {"w": _codes(24, 2, width), "s": np.abs(_floats(24, 2, scale=0.05))}
        sizes = {"K": 64, "N": 24, "bits": bits, "block_size": 32}
        yield Op("microsoft/MatMulNBits", {"a": (3, 64), **blocks}, "f32", sizes, title=f"{bits}bits")
        yield Op("microsoft/MatMulNBits", {"a": (1, 64), **blocks}, "f32", {**sizes, "accuracy_level": 4},
                 title=f"{bits}bits-rounded", tolerance=3e-2)  # fmt: skip
        yield Op("microsoft/GatherBlockQuantized",
                 {"w": blocks["w"].reshape(24, -1), "at": _ints(3, 0).reshape(1, 2), "s": blocks["s"]}, "f32",
                 {"bits": bits, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}, fed=["at"],
                 title=f"{bits}bits")  # fmt: skip
    zeros = {"w": _codes(24, 2, 16), "s": np.abs(_floats(24, 2, scale=0.05)), "z": _codes(24, 1)}
    yield Op("microsoft/MatMulNBits", {"a": (3, 64), **zeros}, "f32", {"K": 64, "N": 24, "bits": 4, "block_size": 32},
             title="zeros")  # fmt: skip


def _contributed() -> Iterator[Op]:
    yield Op("microsoft/Gelu", {"x": (2, 7)}, "f32")
    yield Op("microsoft/FastGelu", {"x": (2, 7)}, "f32")
    yield Op("microsoft/BiasGelu", {"x": (2, 7), "b": (7,)}, "f32", constant=["b"])
    yield Op("microsoft/QuickGelu", {"x": (2, 7)}, "f32", {"alpha": 1.0})
    yield Op("SimplifiedLayerNormalization", {"x": (2, 3, 8), "scale": (8,)}, "f32", {"axis": -1}, ["scale"])
    skip = {"x": (1, 3, 8), "skip": (1, 3, 8), "g": (8,)}
    yield Op("microsoft/SkipSimplifiedLayerNormalization", skip, "f32", {"epsilon": 1e-5}, ["g"])
    yield Op("microsoft/SkipLayerNormalization", {**skip, "b": (8,)}, "f32", {"epsilon": 1e-5}, ["g", "b"])
    yield Op("microsoft/FusedMatMul", {"a": (2, 3, 8), "b": (2, 5, 8)}, "f32", {"alpha": 0.5, "transB": 1})
    yield Op("microsoft/FusedConv", {"x": (1, 4, 9), "w": (4, 4, 3), "b": (4,)}, "f32",
             {"activation": "Relu", "pads": [1, 1]}, ["w", "b"])  # fmt: skip
    angles = _floats(16, 4)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    yield Op("microsoft/RotaryEmbedding", {"x": (1, 3, 16), "at": _ints(2), **tables}, "f32",
             {"interleaved": 1, "num_heads": 2, "rotary_embedding_dim": 8}, fed=["at"],
             title="interleaved")  # fmt: skip
    yield Op("microsoft/RotaryEmbedding", {"x": (1, 3, 16), "at": _ints(0, 5, 9).reshape(1, 3), **tables}, "f32",
             fed=["at"])  # fmt: skip
    heads = {"num_heads": 2, "scale": 0.3}
    three = {"q": (1, 3, 16), "k": (1, 3, 16), "v": (1, 3, 16)}
    past = {"_1": (), "_2": (), "_3": (), "pk": (1, 2, 4, 8), "pv": (1, 2, 4, 8)}
    yield Op("microsoft/MultiHeadAttention", three, "f32", heads)
    yield Op("microsoft/MultiHeadAttention", three, "f32", {**heads, "unidirectional": 1}, title="causal")
    yield Op("microsoft/MultiHeadAttention", {"q": (1, 1, 16), "k": (1, 1, 16), "v": (1, 1, 16), **past}, "f32", heads,
             outputs=3, title="past")  # fmt: skip
    wide = _floats(16, 8)
    yield from _grouped({"cos": np.cos(wide), "sin": np.sin(wide)})


def _grouped(tables: dict[str, np.ndarray[Any, Any]]) -> Iterator[Op]:
    """A prompt, a step at the end of a cache, and a window; the caches get full, so that all of them is defined."""
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 0}
    for title, count, end, more in (
        ("prompt", 8, 8, {}),
        ("step", 1, 8, {}),
        ("window", 8, 8, {"local_window_size": 3}),
    ):
        yield Op(
            "microsoft/GroupQueryAttention",
            {
                "qkv": (1, count, 128), "_k": (), "_v": (), "pk": (1, 2, 8, 16), "pv": (1, 2, 8, 16),
                "ends": np.array([[end - 1]], np.int32), "total": np.array(end, np.int32), **tables,
            },
            "f32", {**attributes, **more}, fed=["ends", "total"], outputs=3, title=title,
        )  # fmt: skip


TABLE: tuple[Op, ...] = (*_elementwise(), *_shapes(), *_networks(), *_quantised(), *_contributed())
