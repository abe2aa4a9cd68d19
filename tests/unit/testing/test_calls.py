# SPDX-License-Identifier: Apache-2.0
"""Calls of the suite: memory of ours, arenas, cancels."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpfedge_cpu import CpuBackend
from dpfedge_reference import ReferenceBackend

from dpfedge.backend.host import HostBinding
from dpfedge.errors import RunCancelled, Unsupported
from dpfedge.link import Arena, LinkSpec
from dpfedge.testing.calls import ended_on_its_way, lasting, run_in_place, same, slot, slots, stoppable
from dpfedge.testing.loading import load
from dpfedge.testing.models import WIDTH, affine, chain, right_affine, rows

BACKEND = ReferenceBackend()
DEVICE = BACKEND.devices(Path("/"))[0]


def test_run_in_place__writes_our_memory() -> None:
    """Every output, in the graph's order."""
    wanted = right_affine(rows(2))
    found = run_in_place(load(BACKEND, DEVICE, affine(2)), {"x": rows(2)}, list(wanted.values()))

    same(dict(zip(wanted, found, strict=True)), wanted)
    with pytest.raises(AssertionError, match="y"):
        same({"y": wanted["y"] * 2}, {"y": wanted["y"]})


class Off(HostBinding):
    """A binding that does one thing it must not do, at each run."""

    fault = "more"
    runs = 0

    def run(self) -> None:
        super().run()
        self.runs += 1
        if self.fault == "behind":
            y = self._fixed["y"]
            np.lib.stride_tricks.as_strided(y, (y.size + 1,), (4,))[-1] = 0
        elif self.fault == "input":
            self._feeds["x"][0, 0] += 1
        elif self.fault == "more":
            self._fixed["y"] += np.float32(self.runs)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("behind", "memory around an output"), ("input", "an input was written"), ("more", "gave other bytes")],
)
def test_run_in_place__finds_what_it_must_not_do(fault: str, words: str) -> None:
    """A write behind the output's end, one into an input, a second run that differs."""
    executable = load(BACKEND, DEVICE, affine(2))
    call = Off(executable)  # type: ignore[arg-type]
    call.fault = fault
    executable.bind = lambda: call  # type: ignore[method-assign]

    with pytest.raises(AssertionError, match=words):
        run_in_place(executable, {"x": rows(2)}, list(right_affine(rows(2)).values()))


def test_slot__is_memory_of_the_arena() -> None:
    """What is written is what a consumer would map."""
    with Arena.create([LinkSpec("a.b", "a", "b", 1, 2 * WIDTH * 4)], requests=1) as arena:
        place = slot(arena, "a.b")
        place[...] = 3
        assert place.shape == (2, WIDTH)
        assert not place.flags.owndata
        del place


def test_stoppable__only_where_it_is_promised() -> None:
    """The capability counts, not the method."""
    with pytest.raises(Unsupported, match="backend reference: a run cannot be ended"):
        stoppable(BACKEND, DEVICE, load(BACKEND, DEVICE, affine(1)).bind())


def test_ended_on_its_way__tells_from_the_last_output() -> None:
    """A cancel long after the end ended nothing, and leaves the binding rearmed."""
    backend = CpuBackend()
    device = backend.devices(Path("/"))[0]
    call, y = load(backend, device, chain(2, 4)).bind(), np.zeros((4, WIDTH), np.float32)
    call.set_input("x", rows(4))
    call.set_output("y", y)

    assert not ended_on_its_way(call, stoppable(backend, device, call), y, 0.2)
    assert np.isfinite(y).all()
    call.run()


def test_ended_on_its_way__tells_from_the_time_it_took() -> None:
    """A cancel that is looked at when everything was computed ended nothing, whatever it says."""

    class Slow(HostBinding):
        def __init__(self, looks: int) -> None:
            super().__init__(load(BACKEND, DEVICE, affine(2)))  # type: ignore[arg-type]
            self._looks, self._asked = looks, threading.Event()

        def run(self) -> None:
            for _ in range(self._looks):
                time.sleep(0.1 / self._looks)
                if self._asked.is_set():
                    raise RunCancelled("the run was cancelled", where="graph affine")

        def cancel(self) -> None:
            self._asked.set()

        def rearm(self) -> None:
            self._asked.clear()

    y = np.zeros(4, np.float32)
    late, prompt = Slow(1), Slow(50)
    assert not ended_on_its_way(late, late, y, 0.001)
    assert any(ended_on_its_way(prompt, prompt, y, 0.001) for _ in range(20))


def test_slots__of_one_arena() -> None:
    """Each in a link of its own, writable, and gone with the arena."""
    with slots(3) as places:
        for index, place in enumerate(places):
            place[...] = index
        assert [place[0, 0] for place in places] == [0, 1, 2]
        assert {place.shape for place in places} == {(2, WIDTH)}
        del place
    assert places == []


@pytest.mark.parametrize(("least_s", "longest", "products"), [(0.0, 4096, 64), (60.0, 256, 256)])
def test_lasting__long_enough_to_be_ended(
    monkeypatch: pytest.MonkeyPatch, least_s: float, longest: int, products: int
) -> None:
    """On a device that is fast it multiplies more often; it has run, and what it writes is there."""
    lengths: list[int] = []

    def counted(length: int, count: int, width: int) -> Any:
        lengths.append(length)
        return chain(length, count, width)

    monkeypatch.setattr("dpfedge.testing.calls.chain", counted)
    call, y = lasting(BACKEND, DEVICE, least_s, longest)
    assert lengths[-1] == products
    assert np.isfinite(y).all()
    assert call.output("y") is y
