# SPDX-License-Identifier: Apache-2.0
"""Finding what is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import StoreError, UsageError
from dpfedge.store import Store
from dpfedge.store import find as module
from dpfedge.store.find import active, by_id, stored, unknown

Make = Callable[..., Path]


def test_active__and_by_id(store: Store, make: Make, judge: Any) -> None:
    """The same record; what is not there is said."""
    one = store.install(make("1"), judge).installed

    assert active(store.places, "voice") == by_id(store.places, one.id) == one
    with pytest.raises(UsageError, match="no such package is installed; found 'x'; allowed voice"):
        active(store.places, "x")
    with pytest.raises(StoreError, match="the record of an installed package cannot be read"):
        by_id(store.places, "0" * 64)
    assert "did you mean voice?" in str(unknown(store.places, "voce"))


def test_active__that_is_switched_and_collected_while_it_is_looked_up(
    store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one is found; a record that is simply gone is told."""
    store.install(make("1"), judge)
    real = module.read_slots

    def then_switch(*arguments: Any) -> Any:
        monkeypatch.setattr(module, "read_slots", real)
        slots = real(*arguments)
        store.install(make("2"), judge)
        store.install(make("3"), judge)
        store.gc()
        return slots

    monkeypatch.setattr(module, "read_slots", then_switch)
    one = active(store.places, "voice")
    assert one.version == "3"
    store.places.record(one.id).unlink()
    with pytest.raises(StoreError, match="the record of an installed package cannot be read"):
        active(store.places, "voice")


def test_stored__is_a_package_by_its_place(
    store: Store, make: Make, judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any spelling of its path; a file elsewhere is in no store, even in a folder that looks like one."""
    one = store.install(make("1"), judge).installed
    monkeypatch.chdir(one.path.parent)
    for path in (one.path, Path(one.path.name), one.path.parent / "../files" / one.path.name):
        assert stored(path) == (store.places, one.id)
    (tmp_path / "link").symlink_to(one.path.parent)
    assert stored(tmp_path / "link" / one.path.name) == (store.places, one.id)
    lone = tmp_path / "files"
    lone.mkdir()
    shutil.copy(one.path, lone)
    for path in (lone / one.path.name, make("1"), one.path.with_suffix(".json"), one.path.with_name("x.dpfbin")):
        assert stored(path) is None
