# SPDX-License-Identifier: Apache-2.0
"""Levels, features and their order."""

from __future__ import annotations

import pytest

from dpfedge.hardware.architecture import FEATURES, HWCAPS, LEVELS, features_of, hwcap_words, level_of, runs

V2 = {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}
V3 = V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
A82 = {"asimd", "crc32", "atomics", "asimdrdm", "fphp", "asimdhp"}
A85 = A82 | set("dcpop jscvt fcma lrcpc asimddp flagm dit uscat ilrcpc flagm2 frint sb".split())  # noqa: SIM905


@pytest.mark.parametrize(
    ("arch", "words", "level"),
    [
        ("x86_64", set(), "x86-64-v1"),
        ("x86_64", V2, "x86-64-v2"),
        ("x86_64", V3, "x86-64-v3"),
        ("x86_64", V3 - {"abm"}, "x86-64-v2"),
        ("x86_64", V4, "x86-64-v4"),
        ("x86_64", V4 - {"avx2"}, "x86-64-v2"),
        ("aarch64", {"asimd"}, "armv8.0-a"),
        ("aarch64", {"asimd", "crc32", "atomics", "asimdrdm"}, "armv8.1-a"),
        ("aarch64", A82, "armv8.2-a"),
        ("aarch64", A82 | {"asimddp", "i8mm"}, "armv8.2-a"),
        ("aarch64", A85, "armv8.5-a"),
        ("aarch64", A85 | {"i8mm", "bf16"}, "armv8.6-a"),
        ("aarch64", A85 | {"i8mm", "bf16", "sve", "sve2"}, "armv9.0-a"),
        ("aarch64", A82 | {"sve2"}, "armv8.2-a"),
        ("riscv64", {"v"}, "unknown"),
    ],
)
def test_level__needs_every_word_of_it_and_of_lower_ones(arch: str, words: set[str], level: str) -> None:
    """A level counts only when nothing below it is missing."""
    assert level_of(arch, words) == level


@pytest.mark.parametrize(
    ("level", "wanted", "ok"),
    [
        ("x86-64-v4", "x86-64-v3", True),
        ("x86-64-v3", "x86-64-v4", False),
        ("x86-64-v3", "x86-64-v3", True),
        ("armv8.4-a", "armv8.2-a", True),
        ("armv8.0-a", "armv8.2-a", False),
        ("armv9.0-a", "armv8.5-a", True),
        ("armv9.0-a", "armv8.6-a", False),
        ("armv8.6-a", "armv9.0-a", False),
        ("x86-64-v4", "armv8.0-a", False),
        ("sm_87", "sm_87", True),
        ("sm_90", "sm_87", False),
        ("gfx942", "gfx90a", False),
    ],
)
def test_runs__later_cpu_levels_run_earlier_code(level: str, wanted: str, ok: bool) -> None:
    """CPU levels are ordered within an architecture; other code targets are equal or not."""
    assert runs(level, wanted) is ok


def test_features__have_portable_names() -> None:
    """`int8_dot` and `fp16` mean the same thing on both architectures."""
    assert {"vnni", "avx512_vnni", "int8_dot"} <= features_of("x86_64", V4 | {"avx512_vnni"})
    assert {"vnni", "avx_vnni", "int8_dot"} <= features_of("x86_64", V3 | {"avx_vnni"})
    assert {"dotprod", "int8_dot", "fp16", "neon"} <= features_of("aarch64", A82 | {"asimddp"})
    assert features_of("aarch64", {"asimd"}) == {"neon"}
    assert "amx_int8" not in features_of("x86_64", {"amx_int8"})
    assert features_of("riscv64", {"v"}) == frozenset()


def test_hwcaps__bits_are_the_kernels() -> None:
    """Bits the hardware facts name: asimdhp 10, asimddp 20, sve 22; sve2 1, i8mm 13, bf16 14, sme 23."""
    assert [HWCAPS[16][bit] for bit in (10, 20, 22)] == ["asimdhp", "asimddp", "sve"]
    assert [HWCAPS[26][bit] for bit in (1, 9, 12, 13, 14, 23)] == ["sve2", "svei8mm", "svebf16", "i8mm", "bf16", "sme"]
    assert hwcap_words(16, 1 << 20 | 1 << 40) == {"asimddp"}


def test_tables__words_that_features_need_exist_as_capabilities() -> None:
    """Every aarch64 word of a level or feature can come from the auxiliary vector."""
    known = {word for words in HWCAPS.values() for word in words}
    needed = {word for _, words in LEVELS["aarch64"] for word in words}
    needed |= {word for ways in FEATURES["aarch64"].values() for way in ways for word in way}

    assert needed - known == set()
