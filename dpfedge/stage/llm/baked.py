# SPDX-License-Identifier: Apache-2.0
"""The opening's keys and values between a package and the stage: a fitting record in, a `Prefix` on mapped bytes out.

And back: a computed `Prefix` in, record and bytes for a package out. It runs no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpfedge.backend.api import Executable
from dpfedge.binding import BoundModel
from dpfedge.binding.stale import Stale
from dpfedge.package.prefix import PREFIX_ALIGN, Baked, Stored
from dpfedge.stage.llm.cache import Prefix, past_ports

__all__ = ["load_prefix", "pack_prefix", "stage_key"]


def stage_key(graph: Executable, chunk: int) -> dict[str, str]:
    """What the stage adds to a prefix's key: form of the memory, and how many tokens ran at once."""
    ports = past_ports(graph)
    forms = {f"{spec.dtype}[{','.join(map(str, spec.dims))}]" for spec in ports}
    return {"stage/cache": f"{len(ports)} × {' and '.join(sorted(forms))}", "stage/chunk_tokens": str(chunk)}


def load_prefix(
    model: BoundModel, graph: Executable, chunk: int, shared: Sequence[int]
) -> tuple[Prefix | None, str, tuple[Stale, ...]]:
    """The package's or the seal's prefix for the tokens `shared`, where it lies, and why others were refused."""
    found = model.prefix(stage_key(graph, chunk))
    if found.record is None or found.memory is None:
        return None, "none", found.refused
    if found.record.tokens != tuple(shared):
        wanted, here = (f"{len(tokens)} tokens" for tokens in (found.record.tokens, shared))
        stale = Stale(f"baked prefix of {model.name}", "tokens", wanted, f"{here} of the opening, not the same")
        return None, "none", (*found.refused, stale)
    arrays = {}
    for spec in past_ports(graph):
        stored, wanted_dims = found.record.memory.get(spec.name), (*spec.dims[:2], len(shared), spec.dims[3])
        if stored is None or (stored.dtype, stored.dims) != (spec.dtype, wanted_dims):
            form = "nothing" if stored is None else f"{stored.dtype}{list(stored.dims)}"
            wrong = Stale(f"baked prefix of {model.name}", spec.name, form, f"{spec.dtype}{list(wanted_dims)}")
            return None, "none", (*found.refused, wrong)
        arrays[spec.name] = np.frombuffer(found.memory[spec.name], spec.numpy).reshape(stored.dims)
    return Prefix(found.record.tokens, list(arrays.values())), found.source, found.refused


def pack_prefix(model: BoundModel, graph: Executable, chunk: int, prefix: Prefix) -> Baked:
    """What a package stores of a computed `prefix`; the same numbers give the same bytes."""
    memory: dict[str, Stored] = {}
    pieces = tuple(_pieces(graph, prefix, memory))
    return Baked({**model.key(), **stage_key(graph, chunk)}, prefix.tokens, memory, pieces)


def _pieces(graph: Executable, prefix: Prefix, memory: dict[str, Stored]) -> Iterator[bytes]:
    offset = 0
    for spec, array in zip(past_ports(graph), prefix.memory, strict=True):
        data = np.ascontiguousarray(array).tobytes()
        memory[spec.name] = Stored(offset, len(data), spec.dtype, tuple(array.shape))
        yield data
        padding = -len(data) % PREFIX_ALIGN
        yield bytes(padding)
        offset += len(data) + padding
