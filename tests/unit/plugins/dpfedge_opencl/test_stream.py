# SPDX-License-Identifier: Apache-2.0
"""Streams: windows, cancelling between them, errors of the driver with the node's name."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from dpfedge_opencl.kernels import Kernels, Kind
from dpfedge_opencl.prepared import Prepared
from dpfedge_opencl.stream import Batch, Stream
from made_plans import affine_plan, executable, right, runtime

from dpfedge.errors import BackendError, RunCancelled


def _calls(count: int) -> list[tuple[Any, ...]]:
    return [(index, None) for index in range(count)]


def test_batch__every_call_is_in_one_window() -> None:
    """The last of a window gets an event, the others are as they were; names go with them."""
    batch = Batch(_calls(10), list("abcdefghij"))
    for size in (4, 4, 3):
        windows = batch.windows(size)
        assert [call[0] for window in windows for call in window.calls] == list(range(10))
        assert [name for window in windows for name in window.nodes] == list("abcdefghij")
        assert all(window.calls[-1][-1] is not None for window in windows)
        assert {len(window.calls) for window in windows[:-1]} == {size}
    assert batch.windows(3) is batch.windows(3)


def test_windows__hold_about_a_millisecond() -> None:
    """The quickest of a few runs tells how many kernels that is; windows of a run are alike, none endless."""
    batch = Batch(_calls(15), list("abcdefghijklmno"))
    assert batch.size(4) == 4
    for milliseconds, wanted in ((4, 4), (2.9, 5), (0.4, 15), (9, 15), (0.1, 15)):
        batch.took(milliseconds / 1e3)
        assert batch.size(4) == wanted
    long = Batch(_calls(300), ["a"] * 300)
    long.took(1e-4)
    assert long.size(4) == 64


def test_run__what_one_plan_took_is_where_the_next_begins() -> None:
    """The run that compiles is not timed, nor are plans of one stream that are never run again timed first."""
    call = executable(300).bind()
    call.set_input("x", np.ones(64, np.float32))
    call.run()
    (batch,) = next(iter(call._prepared.values())).steps
    assert isinstance(batch, Batch)
    assert (batch._timed, call._stream._usual) == (0, 4)
    for _ in range(6):
        call.run()
    assert batch._timed == 4
    assert call._stream._usual == batch.size(4)


def test_run__cancelled_before_it_begins() -> None:
    """Nothing is enqueued, and rearming lets it run."""
    call, x = executable(12).bind(), np.ones(70, np.float32)
    y = np.full(70, np.nan, np.float32)
    call.set_input("x", x)
    call.set_output("y", y)
    call.cancel()
    for _ in range(2):
        with pytest.raises(RunCancelled, match="graph g"):
            call.run()
    assert np.isnan(y).all()
    call.rearm()
    call.run()
    assert np.array_equal(y, right(x, 12))


def test_run__error_of_the_driver_is_named() -> None:
    """A launch the driver refuses names its node and the code; the stream goes on working."""
    here = runtime()
    stream = Stream(here, "graph g")
    prepared = Prepared(affine_plan(64, 1), here, Kernels(here.native), stream.handle, "graph g")
    x, y = (here.memory.wrap(np.ones(64, np.float32), write=True) for _ in range(2))
    prepared.point(("input", "x"), x)
    prepared.point(("output", "y"), y)
    (batch,) = prepared.steps
    assert isinstance(batch, Batch)
    stream.run(batch)
    queue, kernel, *rest = batch.windows(4)[0].calls[-1]
    rest[3] = (ctypes.c_size_t * 1)(63)  # 64 items are no multiple of it
    with pytest.raises(BackendError, match=r"clEnqueueNDRangeKernel of x to y.*INVALID_WORK_GROUP_SIZE"):
        stream.run(Batch([(queue, kernel, *rest[:-1], None)], ["x to y"]))
    stream.run(batch)


def test_run__short_ones_are_seen_without_being_told() -> None:
    """From the second run on; a window that takes long is left to the driver's own word."""
    call = executable(1).bind()
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    call.set_input("x", x)
    call.set_output("y", y)
    call.run()
    told = call._stream._told
    found: list[object] = []
    call._stream._told = lambda window: (found.append(window), told(window))[1]  # type: ignore[method-assign]
    for number in range(3):
        x[:] = number
        call.run()
        assert np.array_equal(y, right(x, 1))
    (prepared,) = call._prepared.values()
    (batch,) = prepared.steps
    assert isinstance(batch, Batch)
    (window,) = batch.windows(batch.size(4))
    before, window.long = len(found), 4
    call.run()
    assert found[before:] == [window]


def test_batch__knows_what_was_launched_before() -> None:
    """Kernels with work-groups that ran need no thread of their own; where the driver chooses the size, they do."""
    kinds, launched = frozenset({((1, "affine"), (64,))}), set[Kind]()
    assert not Batch(_calls(2), list("ab"), launched, kinds).ran
    first = Batch(_calls(2), list("ab"), launched, kinds)
    first.done()
    assert Batch(_calls(2), list("ab"), launched, kinds).ran
    assert not Batch(_calls(2), list("ab"), launched, frozenset({((1, "affine"), (32,))})).ran
    chosen = frozenset({((1, "affine"), None)})
    Batch(_calls(2), list("ab"), launched, chosen).done()
    assert not Batch(_calls(2), list("ab"), launched, chosen).ran
