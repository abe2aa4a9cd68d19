# SPDX-License-Identifier: Apache-2.0
"""The layout: C, Python and LINK.md agree byte for byte."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import dpfedge.link
from dpfedge import _core
from dpfedge.link import Descriptor
from dpfedge.link.ring import POLICIES
from dpfedge.tensors import DTYPES, TensorSpec

from .conftest import MakeArena

ROOT = Path(__file__).parents[3]
MANUAL = Path(dpfedge.link.__file__).with_name("LINK.md").read_text("utf-8")


def test_layout__is_what_the_manual_says() -> None:
    """Every size and offset of the compiled core stands in LINK.md, and the other way round."""
    documented = {name: int(value) for name, value in re.findall(r"^\| `(dpf_[a-z_.]+)` \| (\d+) \|", MANUAL, re.M)}

    assert documented == _core.layout()


def test_bounds__on_lost_swaps_are_those_of_the_core() -> None:
    """What a hostile peer can cost a call, as LINK.md promises it."""
    bridge = ROOT / "firmware_bridge"
    tries = re.search(r"DPF_TRIES = (\d+)", (bridge / "include/dpf/base.h").read_text("utf-8"))
    positions = re.search(r"RECEIVE_TRIES = (\d+)", (bridge / "src/ring.c").read_text("utf-8"))

    assert tries is not None
    assert positions is not None
    manual = MANUAL.replace("\n", " ")
    assert f"after {tries[1]} lost compare-and-swaps, `DPF_TRIES`," in manual
    assert f"`receive` a position after {int(positions[1]):,})" in manual


def test_dtypes__are_those_of_tensors() -> None:
    """Codes, names and element sizes."""
    assert [name for name, _ in _core.dtypes()] == list(DTYPES)
    assert all(size == TensorSpec("x", name).numpy.itemsize for name, size in _core.dtypes() if name != "bf16")


def test_policies__have_their_codes() -> None:
    """The position in POLICIES is the number in shared memory."""
    header = (ROOT / "firmware_bridge/include/dpf/ring.h").read_text("utf-8")

    for code, policy in enumerate(POLICIES):
        assert f"DPF_POLICY_{policy.upper()} = {code}" in header


def test_descriptor__read_from_shared_memory(make_arena: MakeArena) -> None:
    """What C wrote is what Python's own layout reads."""
    arena = make_arena()
    producer = arena.producer("left.right", 1)
    loan = producer.loan(100)
    generation, slot = loan.generation, loan.slot
    producer.send(
        loan, kind=5, request=(1 << 64) - 1, turn=8, dtype=1, shape=(2, 3, 4), offset=4, captured_ns=21, deadline_ns=22,
        urgency=6, flags=3,
    )  # fmt: skip
    layout = _core.layout()
    with mmap.mmap(arena.fd, arena.nbytes, prot=mmap.PROT_READ) as memory:
        ring = layout["dpf_arena_header"] + 2 * layout["dpf_bell"]
        at = int.from_bytes(memory[ring + layout["dpf_ring_header.entries_at"] :][:8], "little")
        found = Descriptor.read(memory[at : at + 64])

    assert found == Descriptor((1 << 64) - 1, 21, 22, slot, generation, 0, 8, 4, 96, (2, 3, 4), 1, 3, 6, 5, 3)
