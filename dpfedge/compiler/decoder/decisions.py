# SPDX-License-Identifier: Apache-2.0
"""What `inspect --targets` says of a decoder: which format each group of matrices has, and why it is computed so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dpfedge.compiler.decoder.loud import Loud
from dpfedge.compiler.decoder.shape import DecoderShape
from dpfedge.compiler.decoder.source import TensorSource
from dpfedge.compiler.importer.ggml import FORMATS

__all__ = ["decisions"]

_FUSED = {"qkv": ("attn_q", "attn_k", "attn_v"), "gate_up": ("ffn_gate", "ffn_up")}
_GROUPS = {**_FUSED, "attn_output": ("attn_output",), "ffn_down": ("ffn_down",)}
_MODES = {"exact": "activations stay float32", "fast": "activations may be rounded, to 8 bits per block or finer"}


def decisions(
    source: TensorSource, shape: DecoderShape, mode: str, context: int, loud: Loud
) -> tuple[tuple[str, str], ...]:
    """(choice, rule) pairs of one imported decoder."""
    notes = [_group(source, "embedding", ["token_embd.weight"])]
    for group, parts in _GROUPS.items():
        names = [[f"blk.{layer}.{part}.weight" for part in parts] for layer in range(shape.layers)]
        notes.append(_group(source, group, [name for layer in names for name in layer]))
        apart = sum(len({source.kind(name) for name in layer}) > 1 for layer in names)
        if apart:
            notes.append((f"{group}=apart in {apart} of {shape.layers} layers", "formats differ, so products do, too"))
    if "output.weight" in source.names:
        notes.append(_group(source, "head", ["output.weight"]))
    else:
        notes.append(("head=embedding", "the file has no output matrix of its own"))
    if any(shape.local):
        count = sum(shape.local)
        notes.append((f"window={shape.window}", f"{count} of {shape.layers} layers see this many tokens"))
    notes.append((f"mode={mode}", _MODES[mode]))
    notes += _apart(loud)
    notes.append((f"cache=f32×{context}", "written in place by GroupQueryAttention"))
    return tuple(notes)


def _apart(loud: Loud) -> list[tuple[str, str]]:
    """What fast mode keeps out of the rounding."""
    notes = []
    for part, channels in (("hidden", loud.hidden), ("head", loud.head)):
        if channels:
            rule = "loud on made-up text: kept out of the rounding, added in float32"
            notes.append((f"{part}.loud={','.join(map(str, channels))}", rule))
    return notes


def _group(source: TensorSource, group: str, names: Iterable[str]) -> tuple[str, str]:
    counts = Counter(source.kind(name) for name in names)
    choice = ", ".join(f"{count}×{kind}" if count > 1 else kind for kind, count in sorted(counts.items()))
    return f"{group}={choice}", "; ".join(dict.fromkeys(_rule(kind) for kind in sorted(counts)))


def _rule(kind: str) -> str:
    if form := FORMATS.get(kind):
        least = ", minima in a second product" if form.minima else ""
        return f"the file's own blocks of {form.block} as {form.bits}-bit codes, not rounded again{least}"
    if kind in ("F16", "BF16"):
        return "the same numbers as float32: onnxruntime has no faster product of them on a CPU"
    if kind.startswith("int"):
        return "rounded from the file's values when compiled"
    return "as the source gives it"
