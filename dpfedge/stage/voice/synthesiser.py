# SPDX-License-Identifier: Apache-2.0
"""Phoneme ids in, samples out chunk by chunk; it knows neither text nor links.

A Piper voice (VITS, arXiv 2106.06103) is one graph `synthesise`, or two: `encode` makes the latent z, `decode` turns
any window of it into samples. The decoder is convolutional: a window with `overlap` more frames on each side gives the
same samples inside as the whole latent does, so the first chunk costs a fraction of the sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from dpfedge.backend.api import Array, Binding, Executable
from dpfedge.errors import ModelError, StageError

__all__ = ["SplitVoice", "Synthesiser", "WholeVoice", "windows", "write_pcm"]

Floats = np.ndarray[Any, np.dtype[np.float32]]


class Synthesiser(Protocol):
    """Makes the samples of one clause."""

    def chunks(self, feeds: Mapping[str, Array], first: int) -> Iterator[Floats]:
        """f32[n] chunks in order, each valid until the next; `first` is the first chunk's size in latent frames."""


def windows(frames: int, first: int, largest: int, overlap: int) -> Iterator[tuple[int, int, int, int]]:
    """(window start, window stop, chunk start, chunk stop) in latent frames; chunks cover 0..frames once, in order.

    Sizes double from `first` to `largest`. A window keeps its full width at the end of the latent by reaching further
    back, so that a backend sees few shapes.
    """
    start, size = 0, min(first, largest)
    while start < frames:
        stop = min(start + size, frames)
        high = min(stop + overlap, frames)
        low = max(0, min(start - overlap, high - size - 2 * overlap))
        yield low, high, start, stop
        start, size = stop, min(2 * size, largest)


def write_pcm(samples: Floats, gain: float, scratch: Floats, out: np.ndarray[Any, np.dtype[np.int16]]) -> None:
    """Write f32[n] in −1..1, times `gain`, into i16[n]; louder samples clip, as in piper-tts. `scratch`: f32[≥ n]."""
    scaled = scratch[: samples.size]
    np.multiply(samples, np.float32(gain * 32767.0), out=scaled)
    np.clip(scaled, -32767.0, 32767.0, out=scaled)
    np.copyto(out, scaled, casting="unsafe")


class WholeVoice:
    """One graph per clause; the whole clause is computed before its first sample leaves."""

    def __init__(self, synthesise: Executable, chunk_samples: int) -> None:
        self._graph, self._most = synthesise, chunk_samples

    def chunks(self, feeds: Mapping[str, Array], first: int) -> Iterator[Floats]:
        """See `Synthesiser`; `first` has no use here."""
        call = self._graph.bind()  # of this clause: what it gives lives as long as it does
        samples = _flat(_result(call, self._graph, feeds), self._graph.name)
        for start in range(0, samples.size, self._most):
            yield samples[start : start + self._most]


class SplitVoice:
    """Two graphs; the decoder runs on windows of the latent."""

    def __init__(self, encode: Executable, decode: Executable, *, largest: int, overlap: int) -> None:
        self._encode, self._decode, self._largest, self._overlap = encode, decode, largest, overlap
        if len(decode.inputs) != 1 or len(encode.outputs) != 1:
            raise ModelError("encode must have one output and decode one input", where=f"graph {decode.name}")

    def chunks(self, feeds: Mapping[str, Array], first: int) -> Iterator[Floats]:
        """See `Synthesiser`."""
        encode, decode, port = self._encode.bind(), self._decode.bind(), self._decode.inputs[0].name
        latent = _result(encode, self._encode, feeds)
        for low, high, start, stop in windows(latent.shape[2], first, self._largest, self._overlap):
            window = np.ascontiguousarray(latent[:, :, low:high])
            samples = _flat(_result(decode, self._decode, {port: window}), self._decode.name)
            per_frame = samples.size // (high - low)
            yield samples[(start - low) * per_frame : (stop - low) * per_frame]


def _result(call: Binding, graph: Executable, feeds: Mapping[str, Array]) -> Array:
    """The graph's first output, valid until the call's next run, which can be ended; a graph's own cannot."""
    for name, array in feeds.items():
        call.set_input(name, array)
    call.run()
    return call.output(graph.outputs[0].name)


def _flat(output: Array, graph: str) -> Floats:
    samples = output.reshape(-1)
    if not np.isfinite(samples).all():
        raise StageError("the voice gave samples that are no numbers", stage="voice", found=f"graph {graph}")
    return samples
