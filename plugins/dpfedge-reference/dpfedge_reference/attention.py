# SPDX-License-Identifier: Apache-2.0
"""Attention of `com.microsoft` in NumPy: rotary positions, multi-head and grouped-query attention with caches.

Packed batches, quantised caches and sinks are refused by NotImplementedError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfedge_reference.contrib import Array, Contrib

__all__ = ["ATTENTION", "attend", "rotate"]


def rotate(x: Array, positions: Array, cos: Array, sin: Array, *, interleaved: bool, size: int = 0) -> Array:
    """[b, h, s, d] with the first `size` elements (0: all) of each head turned by its position [b, s]."""
    width = size or x.shape[-1]
    c, s = (table[positions][:, None, :, : width // 2].astype(np.float64) for table in (cos, sin))
    turned = x.astype(np.float64)
    if interleaved:
        first, second = turned[..., 0:width:2].copy(), turned[..., 1:width:2].copy()
        turned[..., 0:width:2], turned[..., 1:width:2] = first * c - second * s, second * c + first * s
    else:
        first, second = turned[..., : width // 2].copy(), turned[..., width // 2 : width].copy()
        turned[..., : width // 2], turned[..., width // 2 : width] = first * c - second * s, second * c + first * s
    return turned.astype(x.dtype)


def attend(query: Array, key: Array, value: Array, scale: float, bias: Array | float = 0.0, cap: float = 0.0) -> Array:
    """softmax(q·kᵀ·scale + bias)·v over [b, h, s, d]; grouped heads are repeated."""
    groups = query.shape[1] // key.shape[1]
    k, v = (np.repeat(one.astype(np.float64), groups, 1) for one in (key, value))
    scores = np.matmul(query.astype(np.float64), k.swapaxes(-1, -2)) * scale
    scores = (cap * np.tanh(scores / cap) if cap else scores) + bias
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(np.matmul(scores / scores.sum(-1, keepdims=True), v), query.dtype)


def _heads(x: Array, count: int) -> Array:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def _together(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


class RotaryEmbedding(Contrib):
    """Rotary positions on [b, s, h·d] or [b, h, s, d]; one position is that of the first row."""

    def _run(
        self, x: Array, positions: Array, cos: Array, sin: Array, interleaved: int = 0, num_heads: int = 0,
        rotary_embedding_dim: int = 0, scale: float = 1.0, is_packed_batching: int = 0,
    ) -> tuple[Array]:  # fmt: skip
        if is_packed_batching:
            raise NotImplementedError("is_packed_batching")
        width = rotary_embedding_dim or 2 * cos.shape[-1]
        heads = x if x.ndim == 4 else _heads(x, num_heads or x.shape[-1] // width)
        count = heads.shape[2]
        where = positions if positions.size > 1 or positions.ndim == 2 else positions + np.arange(count)
        where = np.broadcast_to(where.reshape(-1, count), (len(x), count))
        turned = rotate(heads, where, cos, sin, interleaved=bool(interleaved), size=width)
        return (turned if x.ndim == 4 else _together(turned),)


class MultiHeadAttention(Contrib):
    """(attention, present key, present value) of queries and keys [b, s, h·d], or keys [b, h, l, d]."""

    def _run(
        self, query: Array, key: Array | None = None, value: Array | None = None, bias: Array | None = None,
        mask: Array | None = None, attention_bias: Array | None = None, past_key: Array | None = None,
        past_value: Array | None = None, *more: Any, num_heads: int = 0, scale: float = 0.0,
        unidirectional: int = 0, mask_filter_value: float = -10000.0,
    ) -> tuple[Any, ...]:  # fmt: skip
        if key is None or value is None or more or query.ndim != 3:
            raise NotImplementedError("packed queries, keys or values")
        if bias is not None:
            parts = np.split(bias, [query.shape[-1], 2 * query.shape[-1]])
            query = query + parts[0]
            key, value = (key + parts[1], value + parts[2]) if key.ndim == 3 else (key, value)
        q = _heads(query, num_heads)
        k, v = (one if one.ndim == 4 else _heads(one, num_heads) for one in (key, value))
        if past_key is not None and past_value is not None:
            k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
        total = _mask(mask, mask_filter_value) + (0.0 if attention_bias is None else attention_bias)
        if unidirectional:
            total = total + _causal(q.shape[2], k.shape[2])
        return _together(attend(q, k, v, scale or q.shape[-1] ** -0.5, total)), k, v


def _mask(mask: Array | None, fill: float) -> Array | float:
    if mask is None:
        return 0.0
    if mask.ndim == 1:
        raise NotImplementedError("lengths as key_padding_mask")
    added = np.where(mask != 0, 0.0, fill)
    return added[:, None, None, :] if mask.ndim == 2 else added[:, None]


def _causal(queries: int, keys: int, window: int = -1) -> Array:
    """-inf where a key is not before its query; the last query stands at the last key."""
    at, key = np.arange(keys - queries, keys)[:, None], np.arange(keys)[None, :]
    seen = (key <= at) & ((key > at - window) if window > 0 else True)
    return np.where(seen, 0.0, -np.inf)


class GroupQueryAttention(Contrib):
    """(attention, present key, present value); caches [b, kv heads, length, d] are filled at their positions."""

    def _run(
        self, query: Array, key: Array | None, value: Array | None, past_key: Array | None, past_value: Array | None,
        lengths: Array, total: Array, cos: Array | None = None, sin: Array | None = None, *more: Any,
        num_heads: int = 0, kv_num_heads: int = 0, scale: float = 0.0, do_rotary: int = 0,
        rotary_interleaved: int = 0, local_window_size: int = -1, softcap: float = 0.0, smooth_softmax: int = 0,
        **unused: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        if smooth_softmax or any(one is not None for one in more):
            raise NotImplementedError("smooth_softmax, positions, attention bias or sinks")
        q, k, v = _packed(query, num_heads, kv_num_heads) if key is None or value is None else (query, key, value)
        q, k, v = _heads(q, num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
        count = q.shape[2]
        ends = lengths.reshape(-1).astype(np.int64) + 1
        if do_rotary and cos is not None and sin is not None:
            where = np.maximum(ends - count, 0)[:, None] + np.arange(count)
            q, k = (rotate(one, where, cos, sin, interleaved=bool(rotary_interleaved)) for one in (q, k))
        keys, values = _filled(past_key, k, ends, int(total)), _filled(past_value, v, ends, int(total))
        answer = np.zeros_like(q)
        for row, end in enumerate(ends):
            new = min(count, int(end))  # a shorter prompt of a batch is padded on the right
            seen, one = _causal(new, int(end), local_window_size), slice(row, row + 1)
            answer[one, :, :new] = attend(
                q[one, :, :new], keys[one, :, :end], values[one, :, :end], scale or q.shape[-1] ** -0.5, seen, softcap
            )
        return _together(answer), keys, values


def _packed(query: Array, heads: int, groups: int) -> list[Array]:
    size = query.shape[-1] // (heads + 2 * groups)
    return np.split(query, [heads * size, (heads + groups) * size], -1)


def _filled(past: Array | None, new: Array, ends: Array, total: int) -> Array:
    kept = 0 if past is None else past.shape[2]
    cache = np.zeros((*new.shape[:2], max(kept, total), new.shape[3]), new.dtype)
    if past is not None:
        cache[:, :, :kept] = past
    for row, end in enumerate(ends):
        start = max(int(end) - new.shape[2], 0)
        cache[row, :, start:end] = new[row, :, : end - start]
    return cache


ATTENTION: tuple[type[Contrib], ...] = (GroupQueryAttention, MultiHeadAttention, RotaryEmbedding)
