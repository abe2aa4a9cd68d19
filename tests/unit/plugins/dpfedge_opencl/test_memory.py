# SPDX-License-Identifier: Apache-2.0
"""Memory in place: arrays wherever they lie, blocks of ours."""

from __future__ import annotations

import mmap

import numpy as np
from dpfedge_opencl.memory import UseHostPtr
from made_plans import runtime


def test_wrap__begins_at_a_page() -> None:
    """The rest is an offset, so that no alignment is asked of the caller; each wrap has a number of its own."""
    here = runtime()
    memory, array = UseHostPtr(here.context, "device"), np.zeros(3 * mmap.PAGESIZE, np.uint8)
    address = array.__array_interface__["data"][0]
    spans = [memory.wrap(array[start:], write=True) for start in (0, 1, 1000)]
    assert [span.offset for span in spans] == [(address + start) % mmap.PAGESIZE for start in (0, 1, 1000)]
    assert len({span.serial for span in spans}) == 3
    assert memory.copied == 0


def test_wrap__memory_that_must_not_be_written() -> None:
    """Pages of a package are read-only."""
    here = runtime()
    data = np.frombuffer(memoryview(mmap.mmap(-1, 8192)).toreadonly(), np.uint8)
    assert UseHostPtr(here.context, "device").wrap(data, write=False).offset == 0


def test_allocate__gives_whole_pages_to_both() -> None:
    """The CPU's view needs no map."""
    here = runtime()
    block = UseHostPtr(here.context, "device").allocate(5000)
    assert (block.size, block.host().nbytes, block.span.offset) == (5000, 5000, 0)
    block.host()[:] = 7
    block.release()
    assert block.host()[4999] == 7
