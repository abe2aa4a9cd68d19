# SPDX-License-Identifier: Apache-2.0
"""GPU code in libraries; those here are fakes: containers in the layout of NVIDIA's compilers, with nothing in them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from dpfedge.backend.fatbin import Kernels, read_kernels

CUBIN, PTX = 2, 1


def container(*entries: tuple[int, int], magic: bytes = b"\x50\xed\x55\xba", version: int = 1) -> bytes:
    """One container with (kind, compute capability) entries."""
    body = b"".join(
        struct.pack("<HHIQ12xI", kind, 0x101, 64, 24, arch).ljust(64, b"\0") + bytes(24) for kind, arch in entries
    )
    return struct.pack("<4sHHQ", magic, version, 16, len(body)) + body


def test_read_kernels__of_every_container(tmp_path: Path) -> None:
    """Wherever they lie in the file; compiled code and code to be compiled apart."""
    library = tmp_path / "fake.so"
    parts = [container((CUBIN, 80), (CUBIN, 90)), container((CUBIN, 120), (PTX, 120))]
    library.write_bytes(bytes(100) + parts[0] + bytes(33) + parts[1] + bytes(5))

    assert read_kernels(library) == Kernels(frozenset({80, 90, 120}), frozenset({120}))


def test_read_kernels__passes_over_what_does_not_fit(tmp_path: Path) -> None:
    """The magic by chance, another version, an entry of another kind, a container cut short; the good one counts."""
    library = tmp_path / "fake.so"
    chance, other = b"\x50\xed\x55\xba" + bytes(8), container((CUBIN, 70), version=9)
    library.write_bytes(
        chance + other + container((7, 60), (CUBIN, 61)) + container((CUBIN, 89)) + container((CUBIN, 50))[:-30]
    )

    assert read_kernels(library) == Kernels(frozenset({89}), frozenset())


@pytest.mark.parametrize("content", [b"", b"\x50\xed\x55\xba", b"ELF without any"])
def test_read_kernels__of_no_gpu_code(tmp_path: Path, content: bytes) -> None:
    """Nothing is claimed; nor of a file that is not there."""
    library = tmp_path / "fake.so"
    library.write_bytes(content)

    assert read_kernels(library) is None
    assert read_kernels(tmp_path / "none.so") is None
    os.mkfifo(tmp_path / "pipe.so")
    assert read_kernels(tmp_path / "pipe.so") is None, "a pipe must not be waited for"


@pytest.mark.parametrize(
    ("capability", "runs"), [(80, True), (86, True), (87, True), (75, False), (90, False), (120, True), (121, True)]
)
def test_run_on__same_major_or_later_ptx(capability: int, runs: bool) -> None:
    """8.0 runs on 8.6 and 8.7, not on 7.5 and 9.0; what is to be compiled runs on all later GPUs."""
    assert Kernels(frozenset({80}), frozenset({120})).run_on(capability) == runs
