# SPDX-License-Identifier: Apache-2.0
"""What `gc` deletes, and what it must not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import StoreBusy, StoreError
from dpfedge.store import Store
from dpfedge.store import collect as module

Make = Callable[..., Path]


def test_collect__deletes_leftovers_and_old_versions(store: Store, make: Make, judge: Any) -> None:
    """Of a killed install in each folder; seals go with their package, files of others stay."""
    old = store.install(make("1"), judge).installed
    for version in ("2", "3"):
        store.install(make(version), judge)
    places = store.places
    seal = places.package(old.id).with_suffix(".dpfbin.dpfseal")
    leftovers = [seal, places.incoming / "x.dpfbin", places.names / ".voice.json.new", places.files / ".a.json.new"]
    leftovers.append(places.serving / ".7.new")
    for path in leftovers:
        path.write_bytes(b"123")
    (places.files / "README").write_text("somebody else's")
    (places.files / ".snapshot").mkdir()
    collected = store.gc()

    assert set(collected.deleted) == {*leftovers, places.package(old.id), places.record(old.id)}
    assert collected.deleted[seal] == 3
    assert (places.files / "README").exists()
    entry = store.list()[0]
    assert entry.active is not None
    assert entry.previous is not None
    assert (entry.active.version, entry.previous.version) == ("3", "2")
    assert store.gc().deleted == {}


def test_collect__keeps_everything_of_a_package_in_use(
    store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record and seal too."""
    one = store.install(make("1"), judge).installed
    store.places.slots("voice").unlink()
    monkeypatch.setattr(module, "in_use", lambda files: {one.path: [7]})

    assert store.gc().deleted == {}
    assert store.places.record(one.id).exists()


def test_collect__what_went_by_itself_is_no_failure(
    store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a package whose seal is built by who knows no lock: the file has its name by the time it would be deleted."""
    store.install(make("1"), judge)
    part = store.places.files / ".x.part"
    part.write_bytes(b"12")
    monkeypatch.setattr(module, "in_use", lambda files: part.unlink() or {})

    assert store.gc().deleted == {}


@pytest.mark.parametrize("referred_to", [True, False])
def test_collect__keeps_what_belongs_to_a_seal_being_built(
    store: Store, make: Make, judge: Any, referred_to: bool
) -> None:
    """The unfinished file between two names, and the package itself; when it has ended, leftovers go."""
    one = store.install(make("1"), judge).installed
    part, other = (store.places.files / f".{id}.dpfbin.dpfseal.1f.part" for id in (one.id, "0" * 64))
    if not referred_to:
        store.places.slots("voice").unlink()
    with store.sealing(one.id, "dpfedge seal voice"):
        part.write_bytes(b"12")
        other.write_bytes(b"12")
        assert set(store.gc().deleted) == {other}
    lock = store.places.sealing(one.id)
    rest = set() if referred_to else {one.path, store.places.record(one.id), lock}
    assert set(store.gc().deleted) == {part} | rest
    assert lock.exists() is referred_to


def test_collect__waits_for_an_install_in_progress(store: Store) -> None:
    """What it copied so far is its own."""
    with store.changing("dpfedge install x"):
        copy = store.places.incoming / "x.dpfbin"
        copy.write_bytes(b"half of it")
        with pytest.raises(StoreBusy, match="dpfedge install x"):
            Store(store.root, wait_s=0.1).gc()
        assert copy.exists()
    store.gc()

    assert not copy.exists()


def test_collect__deletes_nothing_when_slots_are_damaged(store: Store, make: Make, judge: Any) -> None:
    """They may refer to anything."""
    store.install(make("1"), judge)
    store.places.slots("voice").write_bytes(bytes(80))
    with pytest.raises(StoreError, match="the slots of 'voice' are damaged; install the package again"):
        store.gc()

    assert len(list(store.places.files.iterdir())) == 2
