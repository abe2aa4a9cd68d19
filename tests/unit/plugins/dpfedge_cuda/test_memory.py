# SPDX-License-Identifier: Apache-2.0
"""Host memory the device reads in place: which is pinned, once for all, and given back; over the stand-in."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpfedge_cuda.driver import Context, Driver
from dpfedge_cuda.memory import CudaMemory, Region, mapping_of
from standing import stand_in_driver

from dpfedge.errors import BackendError
from dpfedge.testing.calls import slots


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The stand-in."""
    with stand_in_driver(monkeypatch) as folder:
        yield ctypes.CDLL(str(folder / "libcuda.so.1"))


def memory(**facts: object) -> CudaMemory:
    """Of the first device."""
    driver = Driver()
    return CudaMemory(Context(driver, 0, {**driver.devices()[0], **facts}))


def test_hold__an_arena_is_pinned_once_and_given_back(library: ctypes.CDLL) -> None:
    """Every slot of every link lies in one region, which ends with the last one that holds it."""
    one, before = memory(), library.standin_registered()
    with slots(3) as places:
        holds = [one.hold(place) for place in places]
        assert library.standin_registered() == before + 1
        for hold, place in zip(holds, places, strict=True):
            address = place.__array_interface__["data"][0]
            assert hold is holds[0]
            assert hold is not None
            assert hold.at(address) == address
        del hold, place
        holds.pop()
        assert library.standin_registered() == before + 1
        holds.clear()
        assert library.standin_registered() == before


def test_hold__heap_and_read_only_memory_is_copied(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages shared with other things cannot be pinned."""
    one = memory()
    with monkeypatch.context() as patch:  # not even looked for: a language model binds such memory for each token
        patch.setattr("dpfedge_cuda.memory.mapping_of", lambda array: 1 / 0)
        assert one.hold(np.zeros(1 << 22, np.uint8)) is None
        assert one.hold(np.zeros((4, 4))[:, :2].T) is None
    assert memory().hold(np.zeros(0, np.float32)) is None
    file = tmp_path / "weights"
    file.write_bytes(bytes(1 << 16))
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    assert memory().hold(np.frombuffer(mapped, np.float32)) is None


def test_hold__a_private_mapping_of_its_own(library: ctypes.CDLL) -> None:
    """As a language model's cache is."""
    array = np.frombuffer(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.float32)
    place = mapping_of(array[64:])
    assert place is not None
    assert place[0] <= array.__array_interface__["data"][0] < place[1]
    hold = memory().hold(array[64:])
    assert hold is not None


def test_hold__where_the_device_reads_host_pages(library: ctypes.CDLL) -> None:
    """Nothing has to be pinned, the heap neither."""
    before = library.standin_registered()
    array = np.zeros(16, np.float32)
    hold = memory(host_pages=True).hold(array)
    assert hold is not None
    assert hold.at(1234) == 1234
    assert library.standin_registered() == before
    assert memory(maps=False).hold(array) is None


@pytest.mark.parametrize("function", ["cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2"])
def test_hold__that_cannot_be_pinned(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """An error by name, not a copy in silence; nothing stays pinned."""
    one, before = memory(), library.standin_registered()
    monkeypatch.setenv("STANDIN", f"{function}=2")
    with slots(1) as places:
        with pytest.raises(BackendError, match=f"found {function}: CUDA_ERROR_OUT_OF_MEMORY"):
            one.hold(places[0])
        assert library.standin_registered() == before


def test_region__asks_nothing_of_the_driver_as_the_process_ends(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There no thread can be begun, and the driver unpins everything by itself."""
    made: list[weakref.finalize[..., Region]] = []
    kept = weakref.finalize

    def finalize(*arguments: Any) -> Any:
        made.append(kept(*arguments))
        return made[-1]

    monkeypatch.setattr("dpfedge_cuda.memory.weakref.finalize", finalize)
    with slots(1) as places:
        hold = memory().hold(places[0])
        assert isinstance(hold, Region)
        assert [one.atexit for one in made if one.peek() is not None] == [False]
        del hold
