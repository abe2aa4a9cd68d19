# SPDX-License-Identifier: Apache-2.0
"""What backends may know of the CPU."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.backend.cpu_facts import cpu_facts, false_text

Record = Callable[[str], Path]


def test_facts__of_a_limited_process(record: Record) -> None:
    """Cores are those of the affinity, memory that of the cgroup."""
    facts = cpu_facts(record("x86"))

    assert (facts.arch, facts.level, facts.cores, facts.memory_bytes) == ("x86_64", "x86-64-v3", 1, 4 << 30)
    assert {"avx2", "fma", "f16c"} <= facts.features


def test_facts__of_a_board(record: Record) -> None:
    """A board without limits gives its memory."""
    facts = cpu_facts(record("orin"))

    assert (facts.arch, facts.model, facts.level) == ("aarch64", "12× Cortex-A78AE", "armv8.2-a")
    assert (facts.cores, facts.memory_bytes) == (12, 64349640 * 1024)


def test_facts__of_this_machine() -> None:
    """The live machine is read without a root."""
    facts = cpu_facts()

    assert facts.cores > 0
    assert facts.memory_bytes > 0


def _root(folder: Path, features: str, promised: int, *, sys: bool = True) -> Path:
    """A recording of one aarch64 core with these words, whose kernel promises `promised` (AT_HWCAP)."""
    files = {
        "proc/cpuinfo": f"processor : 0\nFeatures : {features}\nCPU implementer : 0x41\nCPU part : 0xd08\n".encode(),
        "proc/self/auxv": struct.pack("=4Q", 16, promised, 0, 0),
    }
    if sys:
        files["sys/devices/system/cpu/possible"] = b"0\n"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("features", "found"),
    [
        ("fp asimd", None),
        ("fp asimd evtstrm wordofnextyear", None),
        ("fp asimd asimddp", "it has instructions that the kernel does not promise: asimddp"),
    ],
)
def test_false_text__instructions_the_kernel_does_not_promise(tmp_path: Path, features: str, found: str | None) -> None:
    """Words this version does not know are no lie; without /sys no library goes by the text."""
    assert false_text("aarch64", _root(tmp_path / "a", features, 0b11)) == found
    assert false_text("aarch64", _root(tmp_path / "b", features, 0b11, sys=False)) is None


def test_false_text__of_another_architecture(record: Record) -> None:
    """The text of an x86 machine beside an aarch64 kernel, as an emulator shows it; x86 asks the CPU itself."""
    intel = record("x86")

    assert false_text("aarch64", intel) == "it describes x86_64"
    assert false_text("x86_64", intel) is None
    assert false_text("aarch64", record("orin")) is None
