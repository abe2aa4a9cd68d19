# SPDX-License-Identifier: Apache-2.0
"""Kernels from files."""

from __future__ import annotations

from dataclasses import replace

from dpfedge_opencl.ops.api import Node
from dpfedge_opencl.ops.source import (
    divided,
    epilogue_options,
    kernel,
    masked,
    own_and_extras,
    panel_of,
    registers,
    spread,
    vector,
)
from made_flavours import FLAVOURS

WIDE, MALI = FLAVOURS["wide"][0], FLAVOURS["mali"][0]


def test_kernel__is_one_for_equal_options() -> None:
    """So that programs are found by it; options stand in the text."""
    found = kernel("pool", "pool", WIDE, MAX=1, PADDED=0)
    assert found is kernel("pool", "pool", WIDE, PADDED=0, MAX=1)
    assert found.source.startswith("#define CPU 1\n#define MAX 1\n")


def test_vector__follows_the_device() -> None:
    """And the layout it reads."""
    assert (vector(WIDE), vector(WIDE, 8), vector(MALI)) == (16, 8, 4)


def test_spread__gives_a_cpu_one_item_a_group() -> None:
    """A GPU gets whole groups."""
    assert spread(WIDE, (5, 3)) == ((5, 3), (1, 1))
    assert spread(MALI, (5, 3), (4, 16)) == ((8, 16), (4, 16))
    assert spread(MALI, (5,)) == ((64,), (64,))


def test_epilogue_options__load_what_the_steps_need() -> None:
    """A channel's value along a vector, or one for all of it."""
    steps = [["Add", [0, 1], {}, "f32"], ["Add", [2, 3], {}, "f32"]]
    node = Node(
        "MatMul", "n", ("a", "b", "bias", "skip"), ("y",), {"epilogue": {"steps": steps, "kinds": ["channel", "same"]}}
    )
    last, channel = (epilogue_options(node, axis, 16) for axis in ("last", "channel"))
    assert "LOADN(AS(const float,o0_)+(channel_),have_)" in str(last["EXTRA_LOAD(index_,channel_,have_)"])
    assert "(VF)(AS(const float,o0_)[channel_])" in str(channel["EXTRA_LOAD(index_,channel_,have_)"])
    assert own_and_extras(node) == (("a", "b"), ("bias", "skip"))
    assert epilogue_options(Node("", "", (), (), {}), "last", 4)["EPILOGUE"] == "v"


def test_panel_of__follows_the_class_of_hardware() -> None:
    """Known when a graph is lowered, where no device is."""
    assert [panel_of(arch) for arch in ("x86-64-v4", "x86-64-v3", "mali-g610")] == [32, 16, 8]
    assert divided(7, 4) == 2


def test_kernel__asks_for_what_the_compiler_leaves_out() -> None:
    """By functions of its own; a device whose compiler has all gets the text as it is."""
    older = replace(WIDE, vector_width=8, target="avx512f,avx512vl")
    found = kernel("gemm", "gemm", older, MR=1).source
    assert 'target("avx512f,avx512vl")' in found
    assert "#define HAS_AVX512VL 1" in found
    assert "clang attribute" not in kernel("gemm", "gemm", WIDE, MR=1).source
    assert [(masked(one), registers(one)) for one in (WIDE, older, MALI)] == [(True, 32), (True, 32), (False, 32)]
    plain = replace(older, target="")
    assert (masked(plain), registers(plain)) == (False, 16)
