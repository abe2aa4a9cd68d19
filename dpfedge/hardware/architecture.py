# SPDX-License-Identifier: Apache-2.0
"""Instruction set levels and features: the words of a CPU go in, dpfedge's names and their order come out.

It reads no files. Levels: glibc's x86-64 levels, and the mandatory part of each Armv8/Armv9 version as far as
Linux shows it to programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

__all__ = ["FEATURES", "HWCAPS", "LEVELS", "PARTS", "features_of", "hwcap_words", "level_of", "runs"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


LEVELS: Mapping[str, tuple[tuple[str, frozenset[str]], ...]] = {
    "x86_64": (
        ("x86-64-v1", _set("")),
        ("x86-64-v2", _set("cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2")),
        ("x86-64-v3", _set("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave")),
        ("x86-64-v4", _set("avx512f avx512bw avx512cd avx512dq avx512vl")),
    ),
    "aarch64": (
        ("armv8.0-a", _set("")),
        ("armv8.1-a", _set("crc32 atomics asimdrdm")),
        ("armv8.2-a", _set("dcpop")),
        ("armv8.3-a", _set("jscvt fcma lrcpc")),
        ("armv8.4-a", _set("asimddp flagm dit uscat ilrcpc")),
        ("armv8.5-a", _set("flagm2 frint sb")),
        ("armv8.6-a", _set("i8mm bf16")),
    ),
}
"""Levels of an architecture from the lowest; each needs its words of /proc/cpuinfo and those of lower levels."""

_ARMV9 = ("armv9.0-a", "armv8.5-a", _set("sve2"))
_ORDER: Mapping[str, frozenset[str]] = {
    **{
        name: frozenset(lower for lower, _ in levels[: index + 1])
        for levels in LEVELS.values()
        for index, (name, _) in enumerate(levels)
    },
    "armv9.0-a": frozenset({"armv9.0-a", *(name for name, _ in LEVELS["aarch64"][:6])}),
}
"""Level → the levels whose programs it runs. Armv9.0 includes Armv8.5, not Armv8.6."""

FEATURES: Mapping[str, Mapping[str, tuple[frozenset[str], ...]]] = {
    "x86_64": {
        "avx2": (_set("avx2"),),
        "fma": (_set("fma"),),
        "f16c": (_set("f16c"),),
        "avx512": (_set("avx512f avx512bw avx512cd avx512dq avx512vl"),),
        "avx512_vnni": (_set("avx512_vnni"),),
        "avx_vnni": (_set("avx_vnni"),),
        "vnni": (_set("avx512_vnni"), _set("avx_vnni")),
        "avx512_bf16": (_set("avx512_bf16"),),
        "avx512_fp16": (_set("avx512_fp16"),),
        "amx": (_set("amx_tile"),),
        "amx_int8": (_set("amx_tile amx_int8"),),
        "amx_bf16": (_set("amx_tile amx_bf16"),),
        "int8_dot": (_set("avx512_vnni"), _set("avx_vnni"), _set("amx_tile amx_int8")),
        "fp16": (_set("avx512_fp16"),),
        "bf16": (_set("avx512_bf16"), _set("amx_tile amx_bf16")),
    },
    "aarch64": {
        "neon": (_set("asimd"),),
        "atomics": (_set("atomics"),),
        "fp16": (_set("fphp asimdhp"),),
        "dotprod": (_set("asimddp"),),
        "int8_dot": (_set("asimddp"),),
        "i8mm": (_set("i8mm"),),
        "bf16": (_set("bf16"),),
        "sve": (_set("sve"),),
        "sve2": (_set("sve2"),),
        "sme": (_set("sme"),),
    },
}
"""dpfedge's feature name → alternatives, each a set of words of /proc/cpuinfo.

`int8_dot` (8-bit products summed in 32 bits exactly), `fp16` and `bf16` (arithmetic) exist on both architectures.
"""

_HWCAP = """
    fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 sm3 sm4
    asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg
"""
_HWCAP2 = """
    dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm svebf16 i8mm bf16 dgh
    rng bti mte ecv afp rpres mte3 sme
"""
HWCAPS: Mapping[int, tuple[str, ...]] = {16: tuple(_HWCAP.split()), 26: tuple(_HWCAP2.split())}
"""Auxiliary vector entry (AT_HWCAP, AT_HWCAP2) of aarch64 → the word of each bit [linux: arm64 uapi asm/hwcap.h]."""

PARTS: Mapping[tuple[int, int], str] = {
    **{(0x41, part): name for part, name in {
        0xD03: "Cortex-A53", 0xD05: "Cortex-A55", 0xD06: "Cortex-A65", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72",
        0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77", 0xD0E: "Cortex-A76AE",
        0xD40: "Neoverse-V1", 0xD41: "Cortex-A78", 0xD42: "Cortex-A78AE", 0xD46: "Cortex-A510", 0xD49: "Neoverse-N2",
        0xD4B: "Cortex-A78C", 0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4",
        0xD83: "Neoverse-V3AE", 0xD84: "Neoverse-V3", 0xD87: "Cortex-A725", 0xD89: "Cortex-A720AE",
        0xD8E: "Neoverse-N3",
    }.items()},
    (0x4E, 0x000): "Denver", (0x4E, 0x003): "Denver 2", (0x4E, 0x004): "Carmel",
    **{(0x51, part): "Kryo" for part in (0x802, 0x803, 0x804, 0x805)},
}  # fmt: skip
"""(implementer, part) of MIDR_EL1 → core name [linux: arch/arm64/include/asm/cputype.h]."""


def level_of(arch: str, words: Set[str]) -> str:
    """The highest level whose words, and those of every level before it, are all there."""
    if arch == "aarch64" and "asimdhp" in words:
        words = words | {"dcpop"}  # FP16 needs Armv8.2; kernels before 4.14 do not show dcpop
    reached = "unknown"
    for name, needed in LEVELS.get(arch, ()):
        if not needed <= words:
            break
        reached = name
    name, base, needed = _ARMV9
    if arch == "aarch64" and base in _ORDER.get(reached, ()) and needed <= words:
        return name
    return reached


def features_of(arch: str, words: Set[str]) -> frozenset[str]:
    """dpfedge's names of the features these words stand for."""
    return frozenset(name for name, ways in FEATURES.get(arch, {}).items() if any(way <= words for way in ways))


def runs(level: str, wanted: str) -> bool:
    """Whether a device of arch `level` runs code for `wanted`; outside the CPU levels only equality counts."""
    return wanted == level or wanted in _ORDER.get(level, ())


def hwcap_words(entry: int, bits: int) -> frozenset[str]:
    """The words of one auxiliary vector entry."""
    return frozenset(word for index, word in enumerate(HWCAPS[entry]) if bits >> index & 1)
