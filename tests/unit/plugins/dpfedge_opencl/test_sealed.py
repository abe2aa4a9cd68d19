# SPDX-License-Identifier: Apache-2.0
"""The bytes of a seal: programs with their digests, tuning, and what damage does."""

from __future__ import annotations

import pytest
from dpfedge_opencl.sealed import key_of, read, write

from dpfedge.errors import BackendError

PROGRAMS = {"b": b"second" * 9, "a": b"first" * 5}


def test_store__gives_back_what_was_written() -> None:
    """Programs by key, tuning, memory and lanes; the same content gives the same bytes."""
    data = write(PROGRAMS, {"gemm 1x2": [4, 8]}, "use_host_ptr", 8, ("first\ntext", "second"))
    store = read(memoryview(data), "graph g")
    assert {key: store.program(key) for key in store.keys} == PROGRAMS
    assert (store.program("c"), store.tuning) == (None, {"gemm 1x2": [4, 8]})
    assert (store.memory, store.lanes, list(store.joined)) == ("use_host_ptr", 8, ["first\ntext", "second"])
    assert data == write(
        dict(reversed(PROGRAMS.items())), {"gemm 1x2": [4, 8]}, "use_host_ptr", 8, ("first\ntext", "second")
    )
    assert list(read(memoryview(write({}, {})), "graph g").joined) == []


def test_program__of_damaged_bytes_is_none() -> None:
    """One flipped bit: a driver takes such a program without a word, or dies of it."""
    data = bytearray(write(PROGRAMS, {}))
    data[-1] ^= 1
    store = read(memoryview(bytes(data)), "graph g")
    assert store.program("a") == PROGRAMS["a"]
    assert store.program("b") is None


@pytest.mark.parametrize("damaged", [b"", b"\xff" * 40, bytes(8), write(PROGRAMS, {})[:20]])
def test_read__damaged_index(damaged: bytes) -> None:
    """An error that names the graph."""
    with pytest.raises(BackendError, match="graph g"):
        read(memoryview(damaged), "graph g")


def test_read__a_cut_body_loses_its_programs_only() -> None:
    """What is missing is not there."""
    store = read(memoryview(write(PROGRAMS, {})[:-3]), "graph g")
    assert store.program("b") is None


def test_key__holds_everything_it_depends_on() -> None:
    """Device, source and options, each."""
    keys = {key_of(device, source, options) for device in "ab" for source in "ab" for options in ((), ("-DA",))}
    assert len(keys) == 8
