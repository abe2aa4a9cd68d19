# SPDX-License-Identifier: Apache-2.0
"""Differences, poison and memory."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np

from dpfedge.testing.measuring import difference, intact, poisoned, resident_bytes


def test_difference__is_a_share_of_the_largest() -> None:
    """Zero for equal arrays, NaN and infinity included; infinite where something cannot be compared."""
    a = np.array([1.0, -4.0], np.float32)

    assert difference(a, a) == 0
    assert math.isclose(difference(a + np.float32(0.4), a), 0.1, rel_tol=1e-5)
    assert difference(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])) == 0
    assert difference(np.zeros(0), np.zeros(0)) == 0
    assert difference(np.array([True]), np.array([False])) > 0
    assert difference(poisoned((1,), np.dtype(bool)), np.array([True])) > 0


def test_difference__is_infinite_where_nothing_compares() -> None:
    """Another dtype, another shape, or a NaN where a number belongs."""
    a = np.array([1.0, 2.0], np.float32)

    assert math.isinf(difference(a.astype(np.float64), a))
    assert math.isinf(difference(a[:1], a))
    assert math.isinf(difference(np.array([np.nan, 2.0], np.float32), a))


def test_poisoned__is_no_likely_answer() -> None:
    """Every byte is the pattern, whatever the dtype and rank."""
    for shape in ((2, 3), (), (0, 4)):
        assert set(poisoned(shape, np.dtype(np.float32)).tobytes()) <= {0xA5}


def test_intact__until_somebody_writes_beside_it() -> None:
    """One byte before or behind is enough; what lies inside does not count."""
    for at in (-1, 24):
        array = poisoned((2, 3), np.dtype(np.float32))
        array[...] = 0
        assert intact(array)
        whole = array.base
        assert whole is not None
        whole[array.__array_interface__["data"][0] - whole.__array_interface__["data"][0] + at] = 0
        assert not intact(array)


HANDLES = """
import threading, time
from dpfedge.testing.measuring import handles

before, stop = handles(), threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
with open("/dev/null"):
    print(handles() - before)
stop.set()
thread.join()
while handles() != before:  # the kernel takes a moment to forget a thread
    time.sleep(0.01)
"""


def test_handles__counts_files_and_threads() -> None:
    """Those of a process of its own, where nobody else starts any."""
    done = subprocess.run([sys.executable, "-c", HANDLES], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["2"]


def test_resident_bytes__counts_this_process() -> None:
    """Memory that was touched is in it."""
    before = resident_bytes()
    kept = np.ones(32 << 20, np.uint8)

    assert resident_bytes() - before > kept.nbytes // 2


def test_return_at_once__large_memory_that_threads_freed_is_gone() -> None:
    """Each thread's heap would keep some of it, as if a backend that loads in threads leaked."""
    code = (
        "import threading; from dpfedge.testing.measuring import resident_bytes, return_at_once; return_at_once();"
        "before = resident_bytes(); go = threading.Barrier(8)\n"
        "def fill():\n"
        "    go.wait(); blocks = [bytearray(b'x') * (16 << 20) for _ in range(2)]; go.wait(); del blocks\n"
        "threads = [threading.Thread(target=fill) for _ in range(8)]\n"
        "[one.start() for one in threads]; [one.join() for one in threads]\n"
        "print(resident_bytes() - before < 16 << 20)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("True\n", "")
