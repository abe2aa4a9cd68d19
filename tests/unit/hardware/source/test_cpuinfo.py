# SPDX-License-Identifier: Apache-2.0
"""/proc/cpuinfo and the auxiliary vector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.hardware.source.cpuinfo import read_auxv, read_cpuinfo
from dpfedge.hardware.source.root import Root

Record = Callable[[str], Path]


def test_cpuinfo__of_x86(record: Record) -> None:
    """Model, words, processors and physical cores."""
    info = read_cpuinfo(Root(record("h100")))

    assert info is not None
    assert (info.arch, info.model, info.physical) == ("x86_64", "Intel(R) Xeon(R) Platinum 8480C", 4)
    assert info.processors == tuple(range(8))
    assert "amx_tile" in info.words


def test_cpuinfo__of_big_little(record: Record) -> None:
    """Every core has its part."""
    info = read_cpuinfo(Root(record("rk3588")))

    assert info is not None
    assert (info.arch, info.model, info.physical) == ("aarch64", None, None)
    assert [info.parts[core] for core in (0, 4)] == [(0x41, 0xD05), (0x41, 0xD0B)]


def test_cpuinfo__words_are_those_of_every_core(tmp_path: Path) -> None:
    """A feature of some cores only cannot be used."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor : 0\nFeatures : asimd asimddp\nCPU implementer : 0x41\nCPU part : 0xd05\n\n"
        "processor : 1\nFeatures : asimd\nCPU implementer : 0x41\nCPU part : 0xd08\n"
    )

    info = read_cpuinfo(Root(tmp_path))
    assert info is not None
    assert info.words == {"asimd"}


@pytest.mark.parametrize("text", ["\0\1\2", "processor : x\nflags\n", "CPU part : 0xzz\n", "isa : rv64imafdcv\n"])
def test_cpuinfo__of_no_known_kind(tmp_path: Path, text: str) -> None:
    """Text of another architecture, or of none, has no architecture."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text)

    info = read_cpuinfo(Root(tmp_path))
    assert info is not None
    assert (info.arch, info.words, info.parts) == (None, frozenset(), {})


def test_cpuinfo__missing(tmp_path: Path) -> None:
    """Without the file there is nothing."""
    assert read_cpuinfo(Root(tmp_path)) is None


def test_auxv__words_and_page(record: Record) -> None:
    """Capabilities become words; the page size is the kernel's."""
    words, page = read_auxv(Root(record("foreign")))

    assert {"asimd", "asimddp", "i8mm"} <= words
    assert page == 65536


def test_auxv__cut_short(tmp_path: Path) -> None:
    """A partial entry is not read."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/auxv").write_bytes(b"\x10" + bytes(10))

    assert read_auxv(Root(tmp_path)) == (frozenset(), None)
