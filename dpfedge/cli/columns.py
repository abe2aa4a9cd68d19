# SPDX-License-Identifier: Apache-2.0
"""Rows of cells in, lines with the cells below each other out; it knows no unit and no colour."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

__all__ = ["aligned"]


def aligned(rows: Sequence[Sequence[str]], left: Collection[int]) -> Iterator[str]:
    """Columns by number: those of `left` to the left, the others to the right. All rows have as many cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
