# SPDX-License-Identifier: Apache-2.0
"""Broken GGUF files through the whole import: refused by a dpfedge error or imported, never anything else."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.compiler.families import FAMILIES, Options
from dpfedge.errors import DpfError

FILES = sorted((Path(__file__).parents[1] / "golden" / "decoders").glob("*.gguf"))
ROUNDS = 25  # of each file, each with another seed


def _flip(data: bytearray, at: int, source: random.Random) -> None:
    data[at] ^= 1 << source.randrange(8)


def _number(data: bytearray, at: int, source: random.Random) -> None:
    value = source.choice((0, 1, 1 << 31, 1 << 62, (1 << 64) - 1, source.randrange(1 << 20)))
    data[at : at + 8] = value.to_bytes(8, "little")


def _cut(data: bytearray, at: int, source: random.Random) -> None:
    del data[at : at + source.randrange(1, 40)]


def _again(data: bytearray, at: int, source: random.Random) -> None:
    data[at:at] = data[at : at + source.randrange(1, 40)]


CHANGES: tuple[Callable[[bytearray, int, random.Random], None], ...] = (_flip, _number, _cut, _again)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_import__broken_file(tmp_path: Path, path: Path, change: Callable[..., None]) -> None:
    """Bits flipped, numbers replaced, bytes cut out or doubled anywhere in the header or the first weights."""
    good, broken = path.read_bytes(), tmp_path / "broken.gguf"
    header = good.index(b"blk.0.attn_q.weight") + 2048
    for seed in range(ROUNDS):
        source, data = random.Random(seed), bytearray(good)
        change(data, source.randrange(min(header, len(data))), source)
        broken.write_bytes(data)
        with contextlib.suppress(DpfError):
            assert FAMILIES["decoder"].load({"model": broken}, Options("fast", 16)).graphs
