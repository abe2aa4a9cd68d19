# SPDX-License-Identifier: Apache-2.0
"""Operators of `com.microsoft` without attention, in NumPy: activations, norms, and products of quantised matrices.

Each follows onnxruntime's ContribOperators.md at full precision: hints such as `accuracy_level` change nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

__all__ = ["CONTRIB", "Contrib", "sigmoid", "unpack"]

Array = np.ndarray[Any, np.dtype[Any]]


class Contrib(OpRun):
    """An operator outside the standard; defaults of attributes are those of `_run`."""

    op_domain = "com.microsoft"
    op_schema = None


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + _erf(x.astype(np.float64) / math.sqrt(2))), x.dtype)


class Gelu(Contrib):
    """x·Φ(x)."""

    def _run(self, x: Array) -> tuple[Array]:
        return (_gelu(x),)


class FastGelu(Contrib):
    """Gelu by tanh, of x + bias."""

    def _run(self, x: Array, bias: Array | None = None) -> tuple[Array]:
        total = (x if bias is None else x + bias).astype(np.float64)
        inner = math.sqrt(2 / math.pi) * (total + 0.044715 * total**3)
        return ((0.5 * total * (1 + np.tanh(inner))).astype(x.dtype),)


class BiasGelu(Contrib):
    """Gelu of x + bias."""

    def _run(self, x: Array, bias: Array) -> tuple[Array]:
        return (_gelu(x + bias),)


class QuickGelu(Contrib):
    """x·sigmoid(alpha·x)."""

    def _run(self, x: Array, alpha: float = 1.702) -> tuple[Array]:
        return ((x * sigmoid(np.asarray(alpha * x, x.dtype))).astype(x.dtype),)


def _norm(x: Array, scale: Array, epsilon: float, bias: Array | None = None, *, centred: bool) -> Array:
    wide = x.astype(np.float64)
    if centred:
        wide = wide - wide.mean(-1, keepdims=True)
    normed = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * scale
    return np.asarray(normed if bias is None else normed + bias, x.dtype)


class SimplifiedLayerNormalization(Contrib):
    """Root mean square norm over the last axis; onnxruntime keeps it in the standard domain."""

    op_domain = ""

    def _run(
        self, x: Array, scale: Array, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
    ) -> tuple[Array, ...]:
        if axis not in (-1, x.ndim - 1):
            raise NotImplementedError(f"axis {axis}")
        return (_norm(x, scale, epsilon, centred=False),)


_NOTHING = np.zeros(0, np.float32)


class SkipSimplifiedLayerNormalization(Contrib):
    """(norm of x + skip + bias, nothing, nothing, x + skip + bias); mean and deviation are for training."""

    def _run(
        self, x: Array, skip: Array, gamma: Array, bias: Array | None = None, epsilon: float = 1e-12
    ) -> tuple[Any, ...]:
        total = x + skip if bias is None else x + skip + bias
        return _norm(total, gamma, epsilon, centred=False), _NOTHING, _NOTHING, total


class SkipLayerNormalization(Contrib):
    """(layer norm of x + skip + bias, nothing, nothing, x + skip + bias)."""

    def _run(
        self, x: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None,
        epsilon: float = 1e-12,
    ) -> tuple[Any, ...]:  # fmt: skip
        total = x + skip if bias is None else x + skip + bias
        return _norm(total, gamma, epsilon, beta, centred=True), _NOTHING, _NOTHING, total


class FusedMatMul(Contrib):
    """alpha·(A or Aᵀ)·(B or Bᵀ)."""

    def _run(
        self, a: Array, b: Array, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
        transBatchB: int = 0,
    ) -> tuple[Array]:  # fmt: skip
        if transBatchA or transBatchB:
            raise NotImplementedError("transBatchA, transBatchB")
        left = np.swapaxes(a, -1, -2) if transA and a.ndim > 1 else a
        right = np.swapaxes(b, -1, -2) if transB and b.ndim > 1 else b
        return ((alpha * np.matmul(left, right)).astype(a.dtype),)


_ACTIVATIONS: Mapping[str, Callable[[Array, Sequence[float]], Array]] = {
    "Relu": lambda x, p: np.maximum(x, 0),
    "LeakyRelu": lambda x, p: np.where(x < 0, x * (p[0] if p else 0.01), x),
    "Sigmoid": lambda x, p: sigmoid(x),
    "Tanh": lambda x, p: np.tanh(x),
    "Clip": lambda x, p: np.clip(x, p[0], p[1]),
    "HardSigmoid": lambda x, p: np.clip(p[0] * x + p[1], 0, 1),
}


@lru_cache(maxsize=64)
def _one_node(op: str, count: int, attributes: tuple[tuple[str, Any], ...]) -> ReferenceEvaluator:
    names = [f"i{index}" for index in range(count)]
    node = helper.make_node(op, names, ["o"], **dict(attributes))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (*names, "o")]
    graph = helper.make_graph([node], op, values[:-1], values[-1:])
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


class FusedConv(Contrib):
    """activation(Conv(x, w, b) + z)."""

    def _run(
        self, x: Array, w: Array, b: Array | None = None, z: Array | None = None, activation: str = "",
        activation_params: Sequence[float] = (), **conv: Any,
    ) -> tuple[Array]:  # fmt: skip
        inputs = [x, w] if b is None else [x, w, b]
        fixed = tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in sorted(conv.items()))
        found: Any = _one_node("Conv", len(inputs), fixed).run(None, {f"i{k}": one for k, one in enumerate(inputs)})
        total = found[0]
        total = total if z is None else total + z
        params = list(activation_params)
        return ((_ACTIVATIONS[activation](total, params) if activation else total).astype(x.dtype),)


def _integers(a: Array, zero: Array | None) -> Array:
    wide = a.astype(np.int64)
    return wide if zero is None else wide - zero.astype(np.int64)


def _floats(product: Array, a_scale: Array, b_scale: Array, bias: Array | None) -> Array:
    result = product * (a_scale.astype(np.float64) * b_scale.astype(np.float64))
    return (result if bias is None else result + bias).astype(np.float32)


class MatMulIntegerToFloat(Contrib):
    """(A - a_zero)·(B - b_zero)·a_scale·b_scale + bias."""

    def _run(
        self, a: Array, b: Array, a_scale: Array, b_scale: Array, a_zero: Array | None = None,
        b_zero: Array | None = None, bias: Array | None = None,
    ) -> tuple[Array]:  # fmt: skip
        product = np.matmul(_integers(a, a_zero), _integers(b, b_zero))
        return (_floats(product, a_scale, b_scale, bias),)


class DynamicQuantizeMatMul(Contrib):
    """A rounded to u8 over all of it, as DynamicQuantizeLinear does, times a quantised B."""

    def _run(
        self, a: Array, b: Array, b_scale: Array, b_zero: Array | None = None, bias: Array | None = None
    ) -> tuple[Array]:
        least, most = np.float32(min(0.0, float(a.min()))), np.float32(max(0.0, float(a.max())))
        scale = np.float32((most - least) / np.float32(255)) or np.float32(1)
        zero = np.clip(np.rint(-least / scale), 0, 255)
        rounded = np.clip(np.rint(a / scale) + zero, 0, 255).astype(np.int64) - int(zero)
        return (_floats(np.matmul(rounded, _integers(b, b_zero)), np.asarray(scale), b_scale, bias),)


def unpack(codes: Array, bits: int) -> Array:
    """Elements of `bits` bits, the first in the lowest, along the last axis; values as stored."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (codes[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*codes.shape[:-1], -1)


def _zeros(zeros: Array | None, rows: int, blocks: int, bits: int) -> Array | int:
    if zeros is None:
        return 1 << (bits - 1)
    if zeros.dtype != np.uint8:  # stored as numbers, not as codes
        return zeros.reshape(rows, blocks, 1)
    return unpack(zeros.reshape(rows, -1), bits)[:, :blocks, None].astype(np.float64)


class MatMulNBits(Contrib):
    """A·Wᵀ + bias, with W = (codes - zero)·scale in blocks along K."""

    def _run(
        self, a: Array, codes: Array, scales: Array, zeros: Array | None = None, order: Array | None = None,
        bias: Array | None = None, K: int = 0, N: int = 0, bits: int = 4, block_size: int = 32,
        accuracy_level: int = 0, **hints: Any,
    ) -> tuple[Array]:  # fmt: skip
        if order is not None:
            raise NotImplementedError("g_idx")
        blocks = -(-K // block_size)
        values = unpack(codes.reshape(N, blocks, -1), bits).astype(np.float64)
        weights = (values - _zeros(zeros, N, blocks, bits)) * scales.reshape(N, blocks, 1)
        result = np.matmul(a.astype(np.float64), weights.reshape(N, -1)[:, :K].T)
        return ((result if bias is None else result + bias).astype(a.dtype),)


class GatherBlockQuantized(Contrib):
    """Rows of a matrix whose last axis is quantised in blocks, as numbers."""

    def _run(
        self, data: Array, indices: Array, scales: Array, zeros: Array | None = None, bits: int = 4,
        block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
    ) -> tuple[Array]:  # fmt: skip
        if data.dtype != np.uint8 or gather_axis != 0 or quantize_axis not in (-1, data.ndim - 1) or data.ndim != 2:
            raise NotImplementedError("only u8 codes of matrices, quantised along the last axis")
        rows, blocks = len(data), scales.shape[-1]
        values = unpack(data, bits).astype(np.float64)
        width = values.shape[-1]
        padded = np.pad(values, ((0, 0), (0, blocks * block_size - width))).reshape(rows, blocks, block_size)
        numbers = ((padded - _zeros(zeros, rows, blocks, bits)) * scales[..., None]).reshape(rows, -1)[:, :width]
        return (numbers[indices].astype(scales.dtype),)


class BatchNormalization(Contrib):
    """ONNX's own, which `onnx.reference` computes from the batch itself before version 14, whatever it is asked."""

    op_domain = ""

    def _run(
        self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float = 1e-5,
        momentum: float = 0.9, training_mode: int = 0, spatial: int = 1,
    ) -> tuple[Array, ...]:  # fmt: skip
        if not spatial:
            raise NotImplementedError("spatial=0")
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        used = (x.mean(axes), x.var(axes)) if training_mode else (mean, var)
        shape = (1, -1, *[1] * (x.ndim - 2))
        centre, spread, gain, shift = (one.astype(np.float64).reshape(shape) for one in (*used, scale, bias))
        y = ((x - centre) / np.sqrt(spread + epsilon) * gain + shift).astype(x.dtype)
        if not training_mode:
            return (y,)
        kept = (old * momentum + new * (1 - momentum) for old, new in zip((mean, var), used, strict=True))
        return (y, *(one.astype(mean.dtype) for one in kept))


class GatherElements(Contrib):
    """ONNX's own, which `onnx.reference` refuses where the indices are fewer than the data along other axes."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        grid: list[Array] = list(np.indices(indices.shape, sparse=True))
        grid[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
        return (data[tuple(grid)],)


CONTRIB: tuple[type[Contrib], ...] = (
    BatchNormalization, BiasGelu, DynamicQuantizeMatMul, FastGelu, FusedConv, FusedMatMul, GatherBlockQuantized,
    GatherElements, Gelu, MatMulIntegerToFloat, MatMulNBits, QuickGelu, SimplifiedLayerNormalization,
    SkipLayerNormalization, SkipSimplifiedLayerNormalization,
)  # fmt: skip
