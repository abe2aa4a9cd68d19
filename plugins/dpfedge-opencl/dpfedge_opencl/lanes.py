# SPDX-License-Identifier: Apache-2.0
"""How wide the vectors are that the compiler of a device makes, and what its CPU has besides.

A compiler that is older than the CPU takes it for an older one (LLVM 14 a Zen 4 for a Zen 3), whatever vectors the
driver says it likes; a vector wider than the registers then gets to a function of the driver in another place than
that looks, and the process dies. The compiler is asked by the macros that it defines.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from dpfedge_opencl.library import build_seconds, driver
from dpfedge_opencl.ops.api import Facts

if TYPE_CHECKING:
    from dpfedge_opencl.runtime import Runtime

__all__ = ["compiled", "known_lanes"]

_SOURCE = """#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#elif defined(__SSE__)
#define LANES 4
#else
#define LANES LIKED
#endif
#define NAME_(lanes) lanes_##lanes
#define NAME(lanes) NAME_(lanes)
__kernel void NAME(LANES)(__global uint *x) { x[0] = LANES; }
"""
"""The kernel's name is the answer: nothing is made of it, and nothing is run."""
_NARROW = 4  # floats: every device has vectors of so many
_WIDER = {"avx512": "avx512f,avx512bw,avx512cd,avx512dq,avx512vl", "avx512_vnni": "avx512vnni"}
"""Feature of a CPU → what a function asks for to be compiled with it."""


def compiled(facts: Facts, lanes: int, features: Collection[str]) -> Facts:
    """`facts` of a device whose compiler makes vectors of `lanes` floats, and whose CPU has `features`."""
    if lanes >= facts.vector_width:
        return facts
    beyond = [words for name, words in _WIDER.items() if name in features and "avx512" in features]
    return replace(facts, vector_width=lanes, target=",".join(beyond))


def known_lanes(runtime: Runtime, known: int | None = None) -> int:
    """Floats of the widest vector the compiler makes, at most what the device likes; `known` (from a seal) spares
    asking. Nothing is run."""
    liked = runtime.device.facts.vector_width
    if known is not None or not runtime.device.facts.cpu or liked <= _NARROW:
        return liked if known is None else min(liked, known)
    made, device, where = runtime.native, runtime.device.handle, runtime.where
    program = driver(
        lambda: made.program(runtime.context, device, _SOURCE, f"-DLIKED={liked}", where),
        "clBuildProgram", where, build_seconds(),
    )  # fmt: skip
    names = driver(lambda: made.kernel_names(program), "clGetProgramInfo", where)
    return min(liked, int(names.rpartition("_")[2]))
