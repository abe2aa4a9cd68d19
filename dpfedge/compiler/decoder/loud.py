# SPDX-License-Identifier: Apache-2.0
"""Which channels of a decoder's hidden state are loud: an exact graph and made-up text in, what to treat apart out.

Fast mode rounds activations to 8 bits of the largest value in each block. A few channels are many times larger than
their neighbours at almost every token and in almost every layer, so their blocks lose most. It changes no graph.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dpfedge.compiler.blocks import BLOCK
from dpfedge.compiler.decoder.shape import DecoderShape
from dpfedge.compiler.reference import Reference

__all__ = ["Loud", "listen", "text_ids"]

Doubles = np.ndarray[Any, np.dtype[np.float64]]
_LEAST = 0.02  # the share of all rounding that a channel must take away to be loud
_MOST = 8
_TEXT = """A red fox ran across the frozen field while the farmer counted his sheep and wondered when snow would melt.
def area(r):
    return 3.14 * r * r

class Shape:
    name = 'shape'

    def draw(self, canvas):
        canvas.line(0, 0, 10, 10)
Step 1: mix flour (300 g) & water. Step 2: wait 20 minutes. What could go wrong? Nothing, said the baker.
<ul>
<li>First</li>
<li>Second</li>
</ul>
if (x > 3) { y = x * 2; } else { y = 0; }"""


@dataclass(frozen=True, slots=True)
class Loud:
    """What products in fast mode treat apart; nothing by default."""

    hidden: tuple[int, ...] = ()
    """Channels of the normalised hidden state, the same in every layer."""
    head: tuple[int, ...] = ()
    """Channels of what the head reads."""


def text_ids(tokenizer: bytes, context: int, vocabulary: int) -> list[int]:
    """Token ids of a few made-up lines, prose and code, for `listen`."""
    from tokenizers import Tokenizer

    ids = Tokenizer.from_buffer(tokenizer).encode(_TEXT, add_special_tokens=False).ids
    return [int(token) for token in ids if token < vocabulary][:context]


def listen(build: Callable[[Path], onnx.ModelProto], shape: DecoderShape, ids: Sequence[int]) -> Loud:
    """Run the graph that `build` makes (its large constants in the file it is given) over `ids`, at most its context.

    A channel is loud when leaving it out takes 2 % of the rounding away that is left by then; at most 8 are.
    """
    if len(ids) < 2:
        return Loud()
    with tempfile.TemporaryDirectory(prefix="dpfedge-listen-") as folder:
        model = build(Path(folder, "constants"))
        final = [node.input[0] for node in model.graph.node if node.name in ("last_residual", "last_skip")]
        normed = [f"blk.{layer}.{part}_norm" for layer in range(shape.layers) for part in ("attn", "ffn")]
        for name in (*normed, *final):
            model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
        found = _run(Reference("llm", model, Path(folder)), ids)
    # the first token's values are often a thousand times those of all others, and are computed once
    states = [found[name][1:].astype(np.float64) for name in normed]
    last = np.stack([found[name] for name in final]).astype(np.float64).sum(0)[1:]
    gamma = next(tensor for tensor in model.graph.initializer if tensor.name == "output_norm.weight")
    with np.errstate(all="ignore"):  # of a broken file anything may come out; `_loud` looks at it
        head = last / np.sqrt(np.mean(np.square(last), axis=-1, keepdims=True)) * onnx.numpy_helper.to_array(gamma)
    return Loud(_loud(states), _loud([head]))


def _run(reference: Reference, ids: Sequence[int]) -> dict[str, Any]:
    feeds: dict[str, Any] = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, len(ids)), np.int64)}
    for spec in reference.inputs:
        if spec.name not in feeds:
            feeds[spec.name] = np.zeros([int(size) for size in spec.dims], np.float32)
    return reference.run(feeds)


def _loud(states: Sequence[Doubles]) -> tuple[int, ...]:
    """Channels, the loudest first, whose absence lowers blocks' largest values most; states are [tokens, width]."""
    width = states[0].shape[1]
    if width % BLOCK or not all(np.isfinite(x).all() for x in states):  # a broken file's numbers may be anything
        return ()
    power = np.stack([np.square(x / (np.linalg.norm(x) or 1.0)).reshape(len(x), -1, BLOCK) for x in states])
    power = power.reshape(-1, width // BLOCK, BLOCK)
    chosen: list[int] = []
    while len(chosen) < _MOST:
        two = np.partition(power, -2, axis=-1)[..., -2:]
        gain = np.zeros((width // BLOCK, BLOCK))
        np.add.at(gain, (np.arange(width // BLOCK), power.argmax(-1)), two[..., 1] - two[..., 0])
        best = int(gain.argmax())
        if gain.flat[best] < _LEAST * two[..., 1].sum():
            break
        chosen.append(best)
        power[:, best // BLOCK, best % BLOCK] = 0
    return tuple(chosen)
