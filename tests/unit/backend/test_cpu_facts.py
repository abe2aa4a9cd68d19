# SPDX-License-Identifier: Apache-2.0
"""What backends may know of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dpfedge.backend.cpu_facts import cpu_facts

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
