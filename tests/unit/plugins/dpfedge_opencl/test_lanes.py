# SPDX-License-Identifier: Apache-2.0
"""Vectors that a device's compiler makes: asked of the compiler, and believed before the driver."""

from __future__ import annotations

from dataclasses import replace

from dpfedge_opencl.lanes import compiled, known_lanes
from dpfedge_opencl.ops.api import Facts
from made_plans import runtime

LIKES = Facts("x86-64-v4", True, 2, 16, 4096)


def test_known_lanes__of_the_compiler() -> None:
    """At most what the device likes; what a seal knows is taken without a question."""
    here = runtime()
    assert known_lanes(here) in (4, 8, 16)
    assert known_lanes(here) <= here.device.facts.vector_width
    assert known_lanes(here, 4) == 4
    assert here.facts.vector_width == here.lanes == known_lanes(here)


def test_compiled__says_what_functions_may_ask_for() -> None:
    """Narrower vectors where the compiler is older than the CPU, and then what that has besides."""
    features = {"avx512", "avx512_vnni", "vnni"}
    assert compiled(LIKES, 16, features) is LIKES
    narrow = compiled(LIKES, 8, features)
    assert narrow == replace(LIKES, vector_width=8, target=narrow.target)
    assert set(narrow.target.split(",")) >= {"avx512f", "avx512vl", "avx512vnni"}
    assert compiled(LIKES, 8, {"avx2", "vnni"}) == replace(LIKES, vector_width=8)
