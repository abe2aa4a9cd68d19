# SPDX-License-Identifier: Apache-2.0
"""An open GGUF file in, a decoder's shape and its tensors out, as the graph builder wants them; it builds no graph."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from dpfedge.compiler.blocks import Blocks, Floats
from dpfedge.compiler.decoder.shape import ARCHITECTURES, DecoderShape, Rotary, make_shape
from dpfedge.compiler.importer.ggml import dequantise, is_blocked, to_blocks, unpermute_rows
from dpfedge.compiler.importer.gguf import Gguf
from dpfedge.errors import ModelError, Unsupported

__all__ = ["GgufSource", "gguf_shape"]

_LOCAL_BASE = 10_000.0  # what Gemma 3 was trained with; files carry a key for it since 2026 only
_GEMMA3_27B_LAYERS = 62
"""Only this size scales its scores by the width per head instead of head_dim; a GGUF has no key for that."""


def gguf_shape(gguf: Gguf) -> DecoderShape:
    """Read and check the sizes; Unsupported for another architecture or a kind of rotary scaling."""
    where, kind = str(gguf.path), gguf.get("general.architecture", str)
    if kind not in ARCHITECTURES:
        raise Unsupported("architecture cannot be imported", where=where, found=kind, allowed=", ".join(ARCHITECTURES))

    def number(key: str, default: int | None = None) -> int:
        return int(gguf.get(f"{kind}.{key}", int, default))

    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError("tensor token_embd.weight is missing", where=where)
    width, heads, layers = number("embedding_length"), number("attention.head_count"), number("block_count")
    head_dim = number("attention.key_length", width // max(heads, 1))
    _refuse_partial(gguf, kind, head_dim)
    rotary = Rotary(float(gguf.get(f"{kind}.rope.freq_base", float, 10_000.0)), _linear_scale(gguf, kind))
    window, local = _window(gguf, kind)
    by_width = kind == "gemma3" and layers == _GEMMA3_27B_LAYERS
    shape = make_shape(
        where, kind, layers=layers, width=width, hidden=number("feed_forward_length"), heads=heads,
        kv_heads=number("attention.head_count_kv", heads), head_dim=head_dim, vocabulary=embedding.shape[0],
        trained_context=number("context_length"), rotary=rotary, window=window, local=local,
        epsilon=float(gguf.get(f"{kind}.attention.layer_norm_rms_epsilon", float)),
        attention_scale=(width // max(heads, 1)) ** -0.5 if by_width else None,
        local_rotary=Rotary(float(gguf.get(f"{kind}.rope.freq_base_swa", float, _LOCAL_BASE))) if window else None,
        softcap=float(gguf.get(f"{kind}.final_logit_softcapping", float, 0.0)),
    )  # fmt: skip
    if len(tokens := gguf.metadata.get("tokenizer.ggml.tokens", [])) > shape.vocabulary:
        raise ModelError(
            "the embedding has fewer rows than there are tokens", where=where, found=shape.vocabulary,
            allowed=f"{len(tokens)} or more", remedy="export the model again",
        )  # fmt: skip
    # before anything is sized by them
    gguf.tensor("blk.0.attn_q.weight", (shape.query_width, width))
    gguf.tensor("blk.0.ffn_gate.weight", (shape.hidden, width))
    return shape


def _refuse_partial(gguf: Gguf, kind: str, head_dim: int) -> None:
    for key in ("rope.dimension_count", "attention.value_length"):
        found = gguf.get(f"{kind}.{key}", int, head_dim)
        if found != head_dim:
            what = "partial rotary and values of another size cannot be imported"
            raise Unsupported(what, where=f"{gguf.path}: {kind}.{key}", found=found, allowed=head_dim)
    if gguf.get(f"{kind}.expert_count", int, 0):
        raise Unsupported(
            "mixtures of experts cannot be imported", where=str(gguf.path), found=gguf.metadata[f"{kind}.expert_count"]
        )


def _linear_scale(gguf: Gguf, kind: str) -> float:
    """What positions are multiplied by; Llama 3's factors are a tensor of the file, other kinds are refused."""
    scaling = gguf.get(f"{kind}.rope.scaling.type", str, "none")
    if scaling not in ("none", "linear"):
        raise Unsupported(
            "this kind of rotary scaling cannot be imported",
            where=f"{gguf.path}: {kind}.rope.scaling.type",
            found=scaling,
            allowed="none, linear",
        )
    old = gguf.get(f"{kind}.rope.scale_linear", float, 0.0)
    factor = float(gguf.get(f"{kind}.rope.scaling.factor", float, old))
    return 1.0 if factor == 0 else 1.0 / factor


def _window(gguf: Gguf, kind: str) -> tuple[int, list[bool] | None]:
    """(tokens, which layers are local or None for the architecture's pattern)."""
    window = int(gguf.get(f"{kind}.attention.sliding_window", int, 0))
    if window and not ARCHITECTURES[kind].local_period:
        if window < gguf.get(f"{kind}.context_length", int):
            where = f"{gguf.path}: {kind}.attention.sliding_window"
            raise Unsupported(f"sliding windows of {kind} cannot be imported", where=where, found=window)
        return 0, None
    pattern = gguf.metadata.get(f"{kind}.attention.sliding_window_pattern")
    if not window or pattern is None:
        return window, None
    layers = int(gguf.get(f"{kind}.block_count", int))
    if isinstance(pattern, list):
        return window, [bool(item) for item in pattern]
    period = int(gguf.get(f"{kind}.attention.sliding_window_pattern", int))
    if period < 1 or layers > len(gguf.tensors):
        raise ModelError("sliding windows do not fit", where=str(gguf.path), found=f"period {period}, {layers} layers")
    return window, [(layer + 1) % period != 0 for layer in range(layers)]


class GgufSource:
    """The tensors of an open file; it must stay open as long as its arrays are used."""

    def __init__(self, gguf: Gguf, shape: DecoderShape) -> None:
        self._gguf = gguf
        self._orders: dict[str, np.ndarray[Any, np.dtype[np.intp]]] = {}
        if shape.architecture == "llama":  # the others keep the row order they were trained in
            self._orders = {
                "attn_q": unpermute_rows(shape.heads, shape.head_dim),
                "attn_k": unpermute_rows(shape.kv_heads, shape.head_dim),
            }

    @property
    def where(self) -> str:
        """The file."""
        return str(self._gguf.path)

    @property
    def names(self) -> Collection[str]:
        """Every tensor of the file."""
        return self._gguf.tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """The size of a tensor; ModelError when it is missing."""
        if name not in self._gguf.tensors:
            raise ModelError(f"tensor {name} is missing", where=self.where, remedy="export the model again")
        return self._gguf.tensors[name].shape

    def kind(self, name: str) -> str:
        """The file's own format."""
        return self._gguf.tensors[name].kind

    def matrix(self, name: str, rows: int, columns: int) -> Blocks | Floats:
        """The file's own blocks, or float32 values of F32, F16 and BF16."""
        tensor, order = self._gguf.tensor(name, (rows, columns)), self._order(name)
        if is_blocked(tensor.kind):
            blocks = to_blocks(tensor)
            return blocks if order is None else blocks.rows(order)
        return dequantise(tensor) if order is None else dequantise(tensor)[order]

    def vector(self, name: str, size: int) -> Floats:
        """Float32 values; Gemma's files hold 1 + w already."""
        values, order = dequantise(self._gguf.tensor(name, (size,))), self._order(name)
        return values if order is None else values[order]

    def _order(self, name: str) -> np.ndarray[Any, np.dtype[np.intp]] | None:
        parts = name.split(".")
        return self._orders.get(parts[-2]) if len(parts) > 1 else None
