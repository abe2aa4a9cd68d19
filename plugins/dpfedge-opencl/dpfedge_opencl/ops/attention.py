# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention and MultiHeadAttention of `com.microsoft`, with caches; rotary positions inside the first.

How many keys GroupQueryAttention sees is read by the kernels from memory: one plan serves every step of a decoder whose
cache has a fixed size. A cache that the caller bound as output and input (`Emitting.shares`) is written in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfedge.errors import Unsupported
from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import have, need
from dpfedge_opencl.ops.source import divided, i32, i64, kernel, launch, tensors, vector
from dpfedge_opencl.plan import Scalar

__all__ = ["GroupQueryAttention", "MultiHeadAttention"]


def _lanes(to: Emitting, head: int) -> int:
    """The widest vector that divides a head."""
    return next((lanes for lanes in (16, 8, 4) if lanes <= vector(to.facts) and head % lanes == 0), 1)


def _attend(
    to: Emitting, names: Sequence[str], sizes: tuple[int, int, int, int, int], head: int, q: tuple[int, int, int],
    k: tuple[int, int, int], scale: float, *, grouped: bool, causal: bool, window: int = 0, cap: float = 0.0,
) -> None:  # fmt: skip
    """`sizes`: batch, heads, heads that share keys, queries, keys; strides are those of batch, token and head."""
    batch, heads, shared, count, keys = sizes
    made = kernel(
        "attention", "attend", to.facts, HEAD=head, V=_lanes(to, head), GROUPED=int(grouped), CAUSAL=int(causal),
        CAP=int(cap > 0), ROTARY=0,
    )  # fmt: skip
    numbers: list[Scalar] = [i32(heads), i32(shared), i32(count), i32(keys), i64(q[0]), i32(q[1]), i32(q[2]), i64(k[0])]
    numbers += [i32(k[1]), i32(k[2]), np.float32(scale), i32(window), np.float32(cap)]
    work = 2 * batch * heads * count * keys * head
    launch(to, made, [*tensors(names), *numbers], (count, heads, batch), (4, 16, 1), work)


@op("com.microsoft.GroupQueryAttention")
class GroupQueryAttention:
    """Attention whose keys serve several heads each, over a cache [b, groups, length, d] that is filled at the end."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if node.attrs.get("smooth_softmax") or any(node.inputs[9:]) or any(node.outputs[3:]):
            return "smooth_softmax, positions, attention bias or sinks"
        if not all(have(node, index) for index in (3, 4)):
            return "no cache"
        if node.attrs.get("do_rotary") and not (have(node, 7) and have(node, 8)):
            return "rotary positions without tables"
        floats = [dtypes[at] for at in (0, 1, 2, 3, 4, 7, 8) if at < len(dtypes) and dtypes[at]]
        return None if all(one == "f32" for one in floats) else f"dtypes {dtypes}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        pass

    def _sizes(self, node: Node, query: Value) -> tuple[int, int, int]:
        heads, groups = int(node.attrs["num_heads"]), int(node.attrs["kv_num_heads"])
        packed = not have(node, 1)
        return heads, groups, query.shape[-1] // (heads + 2 * groups if packed else heads)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        query, past = need(inputs), need(inputs, 3)
        heads, _, head = self._sizes(node, query)
        total = inputs[6]
        length = past.shape[2]
        if total is not None and total.known is not None:
            length = max(length, int(total.known.reshape(-1)[0]))
        cache = ("f32", (*past.shape[:2], length, head))
        return [("f32", (*query.shape[:2], heads * head)), cache, cache][: len(node.outputs)]

    def emit(self, node: Node, to: Emitting) -> None:
        query = to.value(node.inputs[0])
        heads, groups, head = self._sizes(node, query)
        batch, count = query.shape[:2]
        caches = [self._cache(node, to, index, head) for index in (0, 1)]
        keys = to.value(caches[0]).shape[2]
        turned = to.scratch("f32", (batch, count, heads, head))
        packed = not have(node, 1)
        sources = (node.inputs[0],) * 3 if packed else node.inputs[:3]
        rows = (query.shape[-1],) * 2 if packed else (heads * head, groups * head)
        at = (0, heads * head, (heads + groups) * head) if packed else (0, 0, 0)
        tables = [have(node, 7) or node.inputs[0], have(node, 8) or node.inputs[0]]
        rotary = (2 if node.attrs.get("rotary_interleaved") else 1) if node.attrs.get("do_rotary") else 0
        wide = 2 * to.value(tables[0]).shape[-1] if rotary else 0
        made = kernel("attention", "store", to.facts, HEAD=head, V=1, GROUPED=1, CAUSAL=1, CAP=0, ROTARY=rotary)
        arguments = tensors((*sources, node.inputs[5], *tables, turned, *caches))
        numbers = (heads, groups, count, keys, *rows, *at, wide)
        grid = (count, heads + 2 * groups, batch)
        launch(to, made, [*arguments, *(i32(one) for one in numbers)], grid, (4, 16, 1), math.prod(grid) * head)
        names = (turned, *caches, node.inputs[5], node.outputs[0])
        _attend(
            to, names, (batch, heads, heads // groups, count, keys), head,
            (count * heads * head, heads * head, head), (groups * keys * head, head, keys * head),
            float(node.attrs.get("scale") or head**-0.5), grouped=True, causal=True,
            window=int(node.attrs.get("local_window_size", -1)), cap=float(node.attrs.get("softcap", 0.0)),
        )  # fmt: skip

    def _cache(self, node: Node, to: Emitting, index: int, head: int) -> str:
        """Where key or value cache is written; it holds what the past one held."""
        past = node.inputs[3 + index]
        present = node.outputs[1 + index] if len(node.outputs) > 1 + index else ""
        old = to.value(past)
        name = present or to.scratch("f32", old.shape)
        if not present or not to.shares(present, past):
            _copy_cache(to, past, name, old.shape, to.value(name).shape[2])
        return name


def _copy_cache(to: Emitting, past: str, present: str, shape: tuple[int, ...], length: int) -> None:
    rows = math.prod(shape[:2])
    made = kernel("pack", "lengthen", to.facts, ROWS=1, WIDTH=4096)
    numbers = (rows, shape[2] * shape[3], length * shape[3])
    pieces = divided(length * shape[3], 4096)
    if rows and length:
        launch(to, made, [*tensors((past, present)), *(i32(one) for one in numbers)], (pieces, rows), (1, 64))


@op("com.microsoft.MultiHeadAttention")
class MultiHeadAttention:
    """softmax(q·kᵀ·scale)·v, causal or not; keys [b, l, h·d] or [b, h, l, d], behind a past where there is one."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if any(node.inputs[3:6]) or any(node.inputs[8:]) or any(node.outputs[3:]):
            return "bias, mask or attention bias"
        if not all(have(node, index) for index in (1, 2)):
            return "packed queries, keys and values"
        return None if all(one in ("", "f32") for one in dtypes) else f"dtypes {dtypes}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        pass

    def _sizes(self, node: Node, query: Value, key: Value, past: Value | None) -> tuple[int, int, int, int, int]:
        """Batch, heads, their size, new keys, past ones."""
        heads = int(node.attrs["num_heads"])
        new = key.shape[2] if len(key.shape) == 4 else key.shape[1]
        return query.shape[0], heads, query.shape[-1] // heads, new, past.shape[2] if past else 0

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        query, key = need(inputs), need(inputs, 1)
        past = inputs[6] if len(inputs) > 6 else None
        batch, heads, head, new, old = self._sizes(node, query, key, past)
        cache = ("f32", (batch, heads, old + new, head))
        return [("f32", query.shape), cache, cache][: len(node.outputs)]

    def emit(self, node: Node, to: Emitting) -> None:
        query, key = to.value(node.inputs[0]), to.value(node.inputs[1])
        past = to.value(node.inputs[6]) if have(node, 6) else None
        batch, heads, head, new, old = self._sizes(node, query, key, past)
        if to.value(node.inputs[2]).shape != key.shape:
            raise Unsupported("values of another size than keys", where=f"node {node.name}", found=key.shape,
                              allowed="the same shape")  # fmt: skip
        token = (heads * head, head)
        inner = (heads * new * head, head, new * head) if len(key.shape) == 4 else (new * heads * head, *token)
        sources = list(node.inputs[1:3])
        if past is not None or any(node.outputs[1:]):
            sources = self._append(node, to, sources, (batch, heads, head, old, new), inner)
            inner = (heads * (old + new) * head, head, (old + new) * head)
        count = query.shape[1]
        if batch and count:
            _attend(
                to, (node.inputs[0], *sources, node.inputs[0], node.outputs[0]), (batch, heads, 1, count, old + new),
                head, (count * heads * head, *token), inner, float(node.attrs.get("scale") or head**-0.5),
                grouped=False, causal=bool(node.attrs.get("unidirectional")),
            )  # fmt: skip

    def _append(
        self, node: Node, to: Emitting, new: Sequence[str], size: tuple[int, ...], strides: tuple[int, int, int]
    ) -> list[str]:
        batch, heads, head, old, count = size
        given = [*node.outputs[1:], "", ""][:2]
        present = [name or to.scratch("f32", (batch, heads, old + count, head)) for name in given]
        made = kernel("attention", "append", to.facts, HEAD=head, V=1, APPEND=1)
        past = node.inputs[6:8] if old else new
        numbers: list[Scalar] = [i32(heads), i32(old), i32(count), i64(strides[0]), i32(strides[1]), i32(strides[2])]
        launch(to, made, [*tensors((*past, *new, *present)), *numbers], (heads, batch, 2), (64, 1, 1))
        return present
