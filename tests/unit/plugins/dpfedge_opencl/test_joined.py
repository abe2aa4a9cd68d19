# SPDX-License-Identifier: Apache-2.0
"""Programs of several kernels: names that do not meet, arguments of every kind, items of every axis."""

from __future__ import annotations

import re

import numpy as np
import pytest
from dpfedge_opencl.joined import HEAD, STATE, Joined, digest, signature, words_of
from dpfedge_opencl.kernels import Kernels
from dpfedge_opencl.ops.source import kernel
from dpfedge_opencl.plan import Kernel, Launch, Plan, Scalar, Slot, Tensor
from dpfedge_opencl.prepared import Prepared
from dpfedge_opencl.stream import Batch, Stream
from made_nodes import FACTS
from made_plans import runtime

# both declare the same macro, type and function, each another
FIRST = """#define STEP 2
typedef float NUMBER;
inline NUMBER moved(NUMBER x) { return x + STEP; }
__kernel void step(__global uchar *a, const ulong ao, const float b, const int c, const uint d, const long e,
                   const ulong f) {
    const int at = get_global_id(0) + 4 * (get_global_id(1) + 3 * get_global_id(2));
    ((__global float *)(a + ao))[at] = moved(at) * b + c + d + (float)(e >> 33) + (float)(f >> 33);
}
"""
SECOND = """#define STEP 5
typedef int NUMBER;
static NUMBER moved(NUMBER x) { return x * STEP; }
__kernel void step(__global uchar *a, const ulong ao, __global uchar *b, const ulong bo) {
    const int at = get_global_id(0);
    ((__global float *)(b + bo))[at] = ((__global float *)(a + ao))[at] - moved(at);
}
"""


def _launches() -> tuple[Launch, Launch]:
    scalars = (np.float32(0.5), np.int32(-3), np.uint32(7), np.int64(-(2**34)), np.uint64(3 * 2**33))
    first = Launch(Kernel("step", FIRST), (Tensor("t"), *scalars), (4, 3, 2), (1, 1, 1), "one")
    return first, Launch(Kernel("step", SECOND), (Tensor("t"), Tensor("y")), (24,), (1,), "two")


def _program(memories: int) -> Joined:
    return Joined.of(
        {digest(one.kernel, signature(one)): (one.kernel, signature(one)) for one in _launches()}, memories
    )


@pytest.mark.parametrize(("groups", "items"), [(1, 1), (1, 7), (3, 1), (3, 5), (2, 24)])
def test_joined__runs_each_kernel_for_each_item_with_its_arguments(groups: int, items: int) -> None:
    """As they run one by one, however many groups share the tickets; and again, as all is as it was before."""
    here, program = runtime(), _program(8)
    table, ticket = [0] * STATE, 0
    for one, places in zip(_launches(), ([(1, 64)], [(1, 64), (0, 0)]), strict=True):
        found, tensors = words_of(one)
        found[0], found[5:HEAD] = program.numbers[digest(one.kernel, signature(one))], [ticket, items]
        for at, place in zip(tensors, places, strict=True):
            found[at : at + 2] = place
        table += found
        ticket += -(-24 // items)
    data = np.array([0] * 16 + table, np.uint32).tobytes()
    slots = {"table": Slot("plan", 0, "u32", ()), "y": Slot("arena", 0, "f32", ()), "t": Slot("arena", 256, "u8", ())}
    args: tuple[Tensor | Scalar, ...] = (
        Tensor("table"),
        np.uint32(16),
        np.uint32(ticket),
        *(Tensor(name) for name in ["y", "t", *"yyyyyy"]),
    )
    plan = Plan((Launch(program.kernel, args, (groups,), (1,), "both"),), slots, 1024, {}, data=data)
    memory, stream = here.memory.allocate(1024), Stream(here, "g")
    prepared = Prepared(plan, here, Kernels(here.native), stream.handle, "g")
    assert prepared.data is not None
    prepared.point_all({("arena", 0): memory.span, ("plan", 0): prepared.data.span})
    (batch,) = prepared.steps
    assert isinstance(batch, Batch)
    at = np.arange(24)
    wanted = (at + 2) * 0.5 - 3 + 7 - 2 + 3 - at * 5
    for _ in range(20):
        memory.host()[:] = 0
        memory.release()
        stream.run(batch)
        assert np.array_equal(memory.host()[:96].view(np.float32), wanted.astype(np.float32))
        memory.release()
    assert not prepared.data.host()[64 : 64 + 4 * STATE].any()
    prepared.data.release()


def test_joined__is_read_back_from_its_text() -> None:
    """What a seal keeps of it."""
    made = _program(16)
    again = Joined(made.kernel.source)
    assert (again.kernel, again.memories, again.numbers) == (made.kernel, 16, made.numbers)
    assert sorted(again.numbers.values()) == [0, 1]


def test_signature__tells_kinds_of_arguments_apart() -> None:
    """And so does the digest: a kernel is called as its first launch was."""
    first, second = _launches()
    assert (signature(first), signature(second)) == ("tfiulk", "tt")
    assert digest(first.kernel, "t") != digest(first.kernel, "ti")


def test_words__sizes_and_memory() -> None:
    """Axes that a launch lacks have one item; a tensor has three words, its memory and an offset of two."""
    found, places = words_of(_launches()[1])
    assert found == [0, HEAD + 6, 24, 1, 1, *[0] * 8]
    assert places == (HEAD, HEAD + 3)


@pytest.mark.parametrize("name", ["gemm", "rows", "conv", "lstm"])
def test_joined__no_name_of_a_kernel_is_left_as_it_was(name: str) -> None:
    """Macros end with their kernel, and two of the same file do not meet."""
    options = {"lstm": {}, "rows": {"SOFTMAX": 1, "LOG": 0}}.get(name, {})
    made = kernel(name, {"lstm": "lstm_step", "rows": "softmax"}.get(name, name), FACTS, **options)
    text = Joined.of({"a": (made, "t"), "b": (made, "t")}, 8).kernel.source
    defined, gone = (re.findall(rf"^[ \t]*#{what} (\w+)", text, re.MULTILINE) for what in ("define", "undef"))
    assert set(defined) - set(gone) == {"EACH"}
    assert text.count("__kernel") == 1
