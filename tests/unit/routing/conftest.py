# SPDX-License-Identifier: Apache-2.0
"""The golden vectors, read from the normative document, and names for instances."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
T0 = 1735689600000

Key = tuple[bytes, bytes, int, int]
Name = Callable[[int], str]


@pytest.fixture(scope="session")
def document() -> str:
    """The text of ROUTING.md."""
    return (ROOT / "dpfedge/routing/ROUTING.md").read_text()


def _bytes(text: str) -> bytes:
    if named := re.fullmatch(r"(\"(.)\"|00) x (\d+)", text):
        return (named[2].encode() if named[2] else b"\0") * int(named[3])
    if text == "bytes 00..0f":
        return bytes(range(16))
    return text.removesuffix(" (UTF-8)").strip('"').encode() if text.startswith('"') else bytes.fromhex(text)


def _number(text: str) -> int:
    base, _, rest = text.partition("T0")
    if text.startswith("T0"):
        return T0 + int(rest or 0)
    power = re.fullmatch(r"2\^(\d+)(-1)?", base)
    return int(base) if power is None else (1 << int(power[1])) - (1 if power[2] else 0)


@pytest.fixture(scope="session")
def golden_keys(document: str) -> list[Key]:
    """Table A and row B of section 5: model, user, ts_ms, hash."""
    section = document[document.index("## 5.") : document.index("## 6.")]
    rows, row_b = [block.strip().splitlines() for block in section.split("```")[1::2]]
    found: list[Key] = []
    for row in rows:
        model, user, ts_ms, hash = re.split(r"\s{2,}", row)[:4]
        found.append((_bytes(model), _bytes(user), _number(ts_ms), int(hash, 16)))
    for i, word in enumerate(" ".join(row_b).split(), 1):
        found.append((b"model-%d" % (i % 3), b"u" * i, T0 + 1000 * i, int(word, 16)))
    assert len(found) == 15 + 33
    return found


@pytest.fixture(scope="session")
def name() -> Name:
    """Instance i's name in the golden tables."""
    return lambda i: f"10.0.{i // 250}.{i % 250 + 1}:8000"
