# SPDX-License-Identifier: Apache-2.0
"""Shares of characters per step in, text and confidence out: CTC's best path (Graves et al., ICML 2006, section 3.2).

It runs no model. Nothing is done per step in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfedge.errors import ModelError, StageError

__all__ = ["Characters", "decode"]

Floats = np.ndarray[Any, np.dtype[np.float32]]
_BLANK = 0


class Characters:
    """The text of each class; class 0 is the blank."""

    def __init__(self, listed: memoryview | bytes, classes: int, where: str) -> None:
        """`listed` is the asset `characters.txt`; ModelError when it has not one line per class but the blank."""
        try:
            lines = bytes(listed).decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ModelError("characters.txt is not UTF-8", where=where, found=str(error)) from error
        if len(lines) + 1 != classes:
            raise ModelError(
                "characters.txt is not this model's", where=where, found=f"{len(lines)} lines", allowed=classes - 1
            )
        self._texts: Sequence[str] = ["", *lines]

    def __len__(self) -> int:
        return len(self._texts)

    def text(self, classes: Sequence[int]) -> str:
        """The characters of `classes` in a row."""
        return "".join(map(self._texts.__getitem__, classes))


def decode(shares: Floats, characters: Characters) -> tuple[str, float]:
    """(text, mean share of its characters) of f32[steps, classes]; no character: an empty text and 0.

    StageError when the model's numbers are none.
    """
    if shares.ndim != 2 or shares.shape[1] != len(characters):
        found, allowed = f"f32{list(shares.shape)}", f"f32[steps, {len(characters)}]"
        raise StageError("not shares of these characters", stage="text-read", found=found, allowed=allowed)
    best = shares.argmax(axis=1)
    sure = np.take_along_axis(shares, best[:, None], axis=1)[:, 0]
    if not np.isfinite(sure).all():
        raise StageError("the model gave shares that are no numbers", stage="text-read")
    kept = best != _BLANK
    kept[1:] &= best[1:] != best[:-1]
    if not kept.any():
        return "", 0.0
    return characters.text(best[kept].tolist()), float(sure[kept].mean())
