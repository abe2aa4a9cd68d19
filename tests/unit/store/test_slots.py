# SPDX-License-Identifier: Apache-2.0
"""Two slots in one small file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.errors import StoreError
from dpfedge.store.slots import Slots, is_id, read_slots, write_slots

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def test_slots__are_read_as_written(tmp_path: Path) -> None:
    """With one package and with two."""
    path = tmp_path / "voice.json"
    for slots in (Slots(A), Slots(B, A)):
        write_slots(path, "voice", slots)
        assert read_slots(path, "voice") == slots
    assert read_slots(tmp_path / "x", "x") is None


def test_with_active__moves_the_old_one_to_previous() -> None:
    """The same again changes nothing; the previous one again swaps."""
    assert Slots(A).with_active(B) == Slots(B, A)
    assert Slots(B, A).with_active(B) == Slots(B, A)
    assert Slots(B, A).with_active(A) == Slots(A, B)
    assert Slots(B, A).with_active(C) == Slots(C, B)
    assert Slots(B, A).ids() == {A, B}


@pytest.mark.parametrize(
    "text",
    [
        "", "\0" * 80, "[]", "{}",
        f'{{"format": 1, "name": "other", "active": "{A}", "previous": null}}',
        '{"format": 1, "name": "voice", "active": "../x", "previous": null}',
        f'{{"format": 1, "name": "voice", "active": "{A}", "previous": 7}}',
        f'{{"format": 1, "name": "voice", "active": "{A}", "previous": 0}}',
        f'{{"format": 1, "name": "voice", "active": "{A}", "previous": []}}',
        "[" * 100_000,
        f'{{"format": 2, "name": "voice", "active": "{A}", "previous": null}}',
    ],
)  # fmt: skip
def test_read_slots__damaged(tmp_path: Path, text: str) -> None:
    """Zero-filled, cut, of another name, leading elsewhere, a previous package that is no id, hostile JSON."""
    path = tmp_path / "voice.json"
    path.write_text(text)

    with pytest.raises(StoreError) as caught:
        read_slots(path, "voice")

    assert str(caught.value) == f"{path}: the slots of 'voice' are damaged; install the package again"


def test_is_id() -> None:
    """64 hexadecimal digits."""
    assert is_id(A)
    assert not is_id("A" * 64)
    assert not is_id(A + "0")
    assert not is_id(None)
