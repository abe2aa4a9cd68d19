# SPDX-License-Identifier: Apache-2.0
"""Calls as the suite makes them: a binding or an executable in, its answers in memory of ours out.

What is right is not known here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from dpfedge.backend.api import Array, Backend, Binding, Cancels, Device, Executable, cancelling
from dpfedge.errors import RunCancelled, Unsupported
from dpfedge.link import Arena, LinkSpec
from dpfedge.testing.loading import load
from dpfedge.testing.measuring import difference, intact, poisoned
from dpfedge.testing.models import WIDTH, chain, rows

__all__ = ["ended_on_its_way", "lasting", "run_in_place", "same", "slot", "slots", "stoppable"]

_SAME = 1e-4
_WELL_BEFORE = 0.75  # of a whole run: one that is cancelled only at its end takes all of it


def run_in_place(executable: Executable, feeds: Mapping[str, Array], wanted: Sequence[Array]) -> list[Array]:
    """Run with inputs bound and outputs bound to poisoned memory of the wanted shapes; that memory.

    AssertionError where a second run gives other bytes, or where anything but the outputs was written.
    """
    call, runs = executable.bind(), list[list[Array]]()
    before = {name: array.tobytes() for name, array in feeds.items()}
    for name, array in feeds.items():
        call.set_input(name, array)
    for _ in range(2):
        runs.append([poisoned(array.shape, array.dtype) for array in wanted])
        for spec, array in zip(executable.outputs, runs[-1], strict=True):
            call.set_output(spec.name, array)
        call.run()
        assert all(intact(array) for array in runs[-1]), "memory around an output was written"
    assert all(feeds[name].tobytes() == was for name, was in before.items()), "an input was written"
    first, second = ([array.tobytes() for array in run] for run in runs)
    assert first == second, "the second run gave other bytes"
    return runs[0]


def same(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Assert that the wanted outputs are there, but for the order of sums."""
    for name, right in wanted.items():
        assert difference(found[name], right) <= _SAME, name


def slot(arena: Arena, link: str) -> Array:
    """f32[2, WIDTH] in the next slot of a link."""
    loan = arena.producer(link, 1).loan(2 * WIDTH * 4)
    return np.frombuffer(loan.view, np.float32).reshape(2, WIDTH)


@contextmanager
def slots(count: int) -> Iterator[list[Array]]:
    """f32[2, WIDTH] in a slot of each of `count` links of one arena; let go of the arrays before the arena ends."""
    links = [LinkSpec(f"{index}.{index + 1}", str(index), str(index + 1), 2, 2 * WIDTH * 4) for index in range(count)]
    with Arena.create(links, requests=1) as arena:
        found = [slot(arena, link.name) for link in links]
        yield found
        found.clear()


def stoppable(backend: Backend, device: Device, call: Binding) -> Cancels:
    """The binding as one that cancels; Unsupported where its backend does not."""
    found = cancelling(call) if backend.capabilities(device).cancels else None
    if found is None:
        raise Unsupported("a run cannot be ended", where=f"backend {backend.name}")
    return found


def lasting(backend: Backend, device: Device, least_s: float = 0.02, longest: int = 4096) -> tuple[Binding, Array]:
    """A call that ran once for at least `least_s` on `device` (or is `longest` products long), and where it writes."""
    length = 64
    while True:
        call, y = load(backend, device, chain(length, 256, 256)).bind(), poisoned((256, 256), np.dtype(np.float32))
        call.set_input("x", rows(256, 256))
        call.set_output("y", y)
        call.run()
        begun = time.monotonic()
        call.run()
        taken_s = time.monotonic() - begun
        if taken_s >= least_s or length >= longest:
            return call, y
        length *= 4


def ended_on_its_way(call: Binding, stop: Cancels, y: Array, delay: float) -> bool:
    """Whether a cancel `delay` seconds after the start left the last output as it was, well before all is computed."""
    begun = time.monotonic()
    call.run()  # each time anew: others want the machine now and then
    whole_s = time.monotonic() - begun
    y[...] = np.nan
    timer = threading.Timer(delay, stop.cancel)
    timer.start()
    begun = time.monotonic()
    try:
        call.run()
    except RunCancelled:
        return bool(np.isnan(y).all()) and time.monotonic() - begun < _WELL_BEFORE * whole_s
    finally:
        timer.join()
        stop.rearm()
    return False
