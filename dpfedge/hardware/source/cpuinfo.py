# SPDX-License-Identifier: Apache-2.0
"""What `/proc/cpuinfo` and the auxiliary vector say of the cores: text and bytes in, a `CpuInfo` out.

It does not decide which of the two to believe; `dpfedge.hardware.cpu` does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import field

from dpfedge.hardware.architecture import HWCAPS, hwcap_words
from dpfedge.hardware.source.root import Root, label
from dpfedge.records import dataclass

__all__ = ["CpuInfo", "read_auxv", "read_cpuinfo"]

_WORDS = re.compile(r"^(?:flags|Features)\s*:\s*(.*)$", re.MULTILINE)
_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
_PROCESSOR = re.compile(r"^processor\s*:\s*([0-9]{1,5})$", re.MULTILINE)
_PACKAGE = re.compile(r"^physical id\s*:\s*([0-9]{1,5})$", re.MULTILINE)
_CORE = re.compile(r"^core id\s*:\s*([0-9]{1,5})$", re.MULTILINE)
_IMPLEMENTER = re.compile(r"^CPU implementer\s*:\s*(0x[0-9a-fA-F]{1,4})$", re.MULTILINE)
_PART = re.compile(r"^CPU part\s*:\s*(0x[0-9a-fA-F]{1,4})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """The contents of one `/proc/cpuinfo`."""

    arch: str | None
    """`x86_64`, `aarch64`, or None when the text is of neither."""
    model: str | None = None
    words: frozenset[str] = frozenset()
    """Feature words that every core has."""
    processors: tuple[int, ...] = ()
    physical: int | None = None
    """Cores without their hardware threads, where the text tells."""
    parts: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Core → (implementer, part)."""


def read_cpuinfo(root: Root) -> CpuInfo | None:
    """The parsed text, or None when there is none."""
    text = root.text("proc/cpuinfo")
    if not text:
        return None
    # Cores may differ and most lines repeat, so the distinct lines are intersected instead of the cores.
    lines = [frozenset(line.split()) for line in set(_WORDS.findall(text))]
    words = frozenset.intersection(*lines) if lines else frozenset()
    processors = tuple(int(number) for number in _PROCESSOR.findall(text))
    implementers, parts = _IMPLEMENTER.findall(text), _PART.findall(text)
    ids = [(int(who, 16), int(part, 16)) for who, part in zip(implementers, parts, strict=False)]
    model = _MODEL.search(text)
    return CpuInfo(
        arch="aarch64" if ids or "asimd" in words else "x86_64" if "lm" in words else None,
        model=label(model[1]) if model else None,
        words=words,
        processors=processors,
        physical=_physical(text, len(processors)),
        parts=dict(zip(processors, ids, strict=False)) if len(ids) == len(processors) else {},
    )


def _physical(text: str, logical: int) -> int | None:
    packages, cores = _PACKAGE.findall(text), _CORE.findall(text)
    return len(set(zip(packages, cores, strict=True))) if len(packages) == len(cores) == logical > 0 else None


def read_auxv(root: Root) -> tuple[frozenset[str], int | None]:
    """The aarch64 feature words and the page size in bytes from `/proc/self/auxv`; nothing where there is none."""
    data = root.bytes("proc/self/auxv") or b""
    words: frozenset[str] = frozenset()
    page = None
    for entry, value in struct.iter_unpack("=QQ", data[: len(data) // 16 * 16]):
        if entry in HWCAPS:
            words |= hwcap_words(entry, value)
        elif entry == 6:  # AT_PAGESZ
            page = value
    return words, page
