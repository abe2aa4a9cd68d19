# SPDX-License-Identifier: Apache-2.0
"""Installing, switching, rolling back, removing; and that whatever fails leaves the old state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import (
    BackendError,
    BindError,
    DigestError,
    FormatError,
    PackageError,
    SignatureError,
    StoreError,
    UsageError,
)
from dpfedge.package import open_package
from dpfedge.signing import Signer
from dpfedge.store import Store
from dpfedge.store import store as module
from dpfedge.store.record import package_id

Make = Callable[..., Path]
Tree = Callable[[], dict[str, bytes]]


class ToySwitch:
    """A server's answer; `calls` are what it was told."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal, self.calls, self.moved = refusal, list[str](), False

    def commit(self) -> None:
        self.calls.append("commit")
        if self.refusal:
            raise self.refusal

    def drop(self) -> None:
        self.calls.append("drop")


def test_install__makes_a_package_active(store: Store, make: Make, judge: Any) -> None:
    """Verified, signed, proved; the file is read-only and named by its content."""
    done = store.install(make("1"), judge)
    one = store.active("voice")

    assert done.installed == one
    assert (done.copied, done.switched, done.previous) == (True, True, None)
    assert (one.name, one.version, one.verified.golden, one.verified.signer) == ("voice", "1", "passed", judge.signer)
    assert one.path.stat().st_mode & 0o777 == 0o444
    with open_package(one.path) as package:
        assert one.path.name == f"{package_id(package)}.dpfbin"
        assert one.manifest_sha256 == package.manifest_sha256.hex()
    assert one.state() == "unchanged"
    assert list(store.places.incoming.iterdir()) == []
    assert judge.seen == ["accept", "accept", "prove"]


def test_install__of_the_same_package_is_free(store: Store, make: Make, judge: Any) -> None:
    """Nothing is written, nothing is run; another name for the same file changes nothing."""
    path = make("1")
    first = store.install(path, judge)
    judge.seen.clear()
    again = store.install(path, judge)

    assert again.installed == first.installed
    assert (again.copied, again.switched) == (False, False)
    assert judge.seen == ["accept", "accept"]


def test_install__two_versions_and_back(store: Store, make: Make, judge: Any) -> None:
    """The slots swap; a third version takes the oldest one's slot."""
    for version in ("1", "2"):
        done = store.install(make(version), judge)
    assert done.previous is not None
    assert (done.installed.version, done.previous.version) == ("2", "1")
    assert store.rollback("voice").version == "1"
    assert store.active("voice").version == "1"
    store.install(make("3"), judge)
    entry = store.list()[0]

    assert entry.active is not None
    assert entry.previous is not None
    assert (entry.active.version, entry.previous.version) == ("3", "1")
    assert store.rollback("voice").version == "1"


def test_rollback__to_a_damaged_package_is_refused(store: Store, make: Make, judge: Any) -> None:
    """What is active stays active."""
    one = store.install(make("1"), judge).installed
    store.install(make("2"), judge)
    nbytes = one.path.stat().st_size
    one.path.unlink()
    one.path.write_bytes(bytes(nbytes))
    with pytest.raises(FormatError, match="not a dpfedge package"):
        store.rollback("voice")

    assert store.active("voice").version == "2"


def test_rollback__to_a_revoked_package_is_refused(
    store: Store, make: Make, judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server would start with it."""
    store.install(make("1"), judge)
    store.install(make("2"), judge)
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "revoked.txt").write_text("00" * 16)
    monkeypatch.setenv("DPFEDGE_TRUST", str(tmp_path / "trust"))
    with pytest.raises(SignatureError, match="the key that signed the package was revoked"):
        store.rollback("voice")

    assert store.active("voice").version == "2"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("where", "error"), [
    ("refusal", BindError("not this board")), ("wrong", BackendError("golden run failed")),
])  # fmt: skip
def test_install__refused_leaves_the_old_state(
    store: Store, make: Make, judge: Any, tree: Tree, where: str, error: Exception, first: bool
) -> None:
    """By the board before the copy, by its answers after it; also as the first package of its name."""
    if not first:
        store.install(make("1"), judge)
    before = tree()
    setattr(judge, where, error)
    with pytest.raises(type(error), match=str(error)):
        store.install(make("2"), judge)

    assert tree() == before


def test_install__of_a_damaged_file_names_the_file_given(store: Store, make: Make, judge: Any, tree: Tree) -> None:
    """Not the copy; the section and bytes are told."""
    path = make("1")
    with path.open("r+b") as file:
        file.seek(65536 + 100)
        file.write(b"!")
    with pytest.raises(DigestError) as caught:
        store.install(path, judge)

    assert str(caught.value).startswith(f"{path}: section 'weights', bytes 65536 to 135536: section is damaged, its")
    assert tree() == {}


def test_install__wrong_answers_are_told_of_the_file_given(store: Store, make: Make, judge: Any) -> None:
    """Whoever judges looks at the copy."""

    def wrong(package: Any) -> str:
        raise BackendError("golden run failed", where=f"{package.path}: target cpu")

    judge.prove = wrong
    path = make("1")
    with pytest.raises(BackendError) as caught:
        store.install(path, judge)

    assert str(caught.value) == f"{path}: target cpu: golden run failed"


def test_install__full_disk_says_how_much(
    store: Store, make: Make, judge: Any, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was written."""

    def full(folder: Path, nbytes: int) -> None:
        raise StoreError(f"{nbytes} needed", where=str(folder))

    store.install(make("1"), judge)
    before = tree()
    monkeypatch.setattr(module, "require_space", full)
    path = make("2")
    with pytest.raises(StoreError, match=f"{path.stat().st_size} needed"):
        store.install(path, judge)

    assert tree() == before


def test_install__of_a_name_that_leads_out_is_impossible(store: Store, make: Make, judge: Any) -> None:
    """A slash in a name is no folder."""
    store.install(make("1", "oem/voice"), judge)

    assert store.active("oem/voice").version == "1"
    assert [path.name for path in store.places.names.iterdir()] == ["oem~voice.json"]


@pytest.mark.parametrize("damage", ["zeros", "cut", "record"])
def test_install__repairs_a_damaged_file(store: Store, make: Make, judge: Any, damage: str) -> None:
    """The same package again is copied again when the store's file or record is not what it was."""
    path = make("1")
    one = store.install(path, judge).installed
    if damage == "record":
        store.places.record(one.id).write_bytes(b"\0" * 100)
    else:
        nbytes = one.path.stat().st_size
        one.path.unlink()
        one.path.write_bytes(bytes(nbytes) if damage == "zeros" else path.read_bytes()[:-1])
    done = store.install(path, judge)

    assert done.copied
    assert store.active("voice").path.read_bytes() == path.read_bytes()
    assert store.active("voice").state() == "unchanged"


def test_install__renews_the_record_of_a_file_that_moved(store: Store, make: Make, judge: Any) -> None:
    """As after a restore from a backup: the file is read in full, not copied."""
    path = make("1")
    one = store.install(path, judge).installed
    data = one.path.read_bytes()
    one.path.unlink()
    one.path.write_bytes(data)
    assert store.active("voice").state() == "changed"

    assert not store.install(path, judge).copied
    assert store.active("voice").state() == "unchanged"


def test_install__makes_up_for_a_golden_run_that_was_skipped(store: Store, make: Make, judge: Any) -> None:
    """And takes note of a signer who became known."""
    path = make("1")
    judge.golden, judge.signer = "skipped", None
    store.install(path, judge)
    judge.golden, judge.signer = "passed", Signer("11" * 16, "oem")
    store.install(path, judge)

    verified = store.active("voice").verified
    assert (verified.golden, verified.signer) == ("passed", judge.signer)


def test_install__is_repaired_by_a_new_one_when_slots_are_damaged(store: Store, make: Make, judge: Any) -> None:
    """`list` shows the damage before."""
    store.install(make("1"), judge)
    store.places.slots("voice").write_bytes(bytes(40))
    problem = store.list()[0].problem
    assert problem is not None
    assert "the slots of 'voice' are damaged" in problem

    assert store.install(make("1"), judge).switched
    assert store.active("voice").version == "1"


def test_activate__the_server_switches_after_the_slots(store: Store, make: Make, judge: Any) -> None:
    """It is warm before, told after."""
    switch, seen = ToySwitch(), []

    def activate(installed: Any) -> ToySwitch:
        seen.append((installed.version, [entry.name for entry in store.list()]))
        return switch

    store.install(make("1"), judge, activate)

    assert seen == [("1", [])]
    assert switch.calls == ["commit"]


def test_activate__what_is_active_already(store: Store, make: Make, judge: Any) -> None:
    """A server may still serve the one before: it is told all the same, and no slot is written."""
    store.install(make("1"), judge)
    written = store.places.slots("voice").stat()
    switch = ToySwitch()
    done = store.install(make("1"), judge, lambda installed: switch)

    assert (done.switched, switch.calls) == (False, ["commit"])
    assert store.places.slots("voice").stat() == written


def test_activate__a_server_that_cannot_leaves_the_old_state(store: Store, make: Make, judge: Any) -> None:
    """Whether it cannot warm the package or does not switch: slots as before, the error is told."""
    store.install(make("1"), judge)
    slots = store.places.slots("voice").read_bytes()

    def refuse(installed: Any) -> Any:
        raise StoreError("cannot warm it")

    with pytest.raises(StoreError, match="cannot warm it"):
        store.install(make("2"), judge, refuse)
    assert store.places.slots("voice").read_bytes() == slots
    switch = ToySwitch(StoreError("gone"))
    with pytest.raises(StoreError, match="gone"):
        store.install(make("2"), judge, lambda installed: switch)
    assert switch.calls == ["commit", "drop"]
    assert store.places.slots("voice").read_bytes() == slots
    with pytest.raises(StoreError, match="gone"):
        store.install(make("1", "other"), judge, lambda installed: ToySwitch(StoreError("gone")))

    assert [entry.name for entry in store.list()] == ["voice"]


def test_activate__the_new_slots_stay_once_a_server_has_switched(store: Store, make: Make, judge: Any) -> None:
    """Another one did not: the error says so, and both slots and the first server have the new package."""
    store.install(make("1"), judge)
    switch = ToySwitch(StoreError("one serves the old one on"))
    switch.moved = True
    with pytest.raises(StoreError, match="one serves the old one on"):
        store.install(make("2"), judge, lambda installed: switch)

    assert store.active("voice").version == "2"


def test_activate__slots_that_cannot_be_written_drop_the_server(
    store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves the old one on, without the warm spare."""
    switch = ToySwitch()

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_slots", refuse)
    with pytest.raises(StoreError, match="the store's disk is full"):
        store.install(make("1"), judge, lambda installed: switch)

    assert switch.calls == ["drop"]


def test_unknown_names__are_answered_with_the_known_ones(store: Store, make: Make, judge: Any) -> None:
    """With the nearest."""
    with pytest.raises(UsageError) as caught:
        store.active("voice")
    assert str(caught.value) == f"{store.root}: no such package is installed; found 'voice'; allowed none is"
    store.install(make("1"), judge)
    for ask in (store.active, store.rollback, store.remove):
        with pytest.raises(UsageError, match="found 'vioce'; allowed voice; did you mean voice"):
            ask("vioce")
    with pytest.raises(UsageError, match="'voice' has no previous package; install the version you want"):
        store.rollback("voice")


def test_remove__deletes_what_nobody_uses(store: Store, make: Make, judge: Any, tree: Tree) -> None:
    """A package that is open stays until `gc`."""
    store.install(make("1"), judge)
    store.install(make("2"), judge)
    with open_package(store.active("voice").path, check="fast"):
        collected = store.remove("voice")
        assert len(collected.deleted) == 2
        assert list(collected.kept.values()) == [[os.getpid()]]
        assert store.list() == []
    store.gc()

    assert tree() == {}


def test_read_only_store__says_so(store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word; reading it goes on."""
    store.install(make("1"), judge)
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_RDWR and str(path).startswith(str(store.root)):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError) as caught:
        store.install(make("2"), judge)

    assert str(caught.value) == (
        f"{store.root}: the store is read-only; mount it writable, or choose another store with DPFEDGE_STORE"
    )
    assert store.active("voice").version == "1"


def test_replaced_source__is_noticed(store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that becomes another one between the first look and the copy."""
    path, other = make("1"), make("2")
    real = module.require_space

    def swap(folder: Path, nbytes: int) -> None:
        os.replace(other, path)
        real(folder, nbytes)

    monkeypatch.setattr(module, "require_space", swap)
    with pytest.raises(PackageError, match="the file was replaced while it was installed"):
        store.install(path, judge)

    assert store.list() == []


def test_record__names_no_machine_and_no_user(store: Store, make: Make, judge: Any) -> None:
    """A store can be moved: the record has no path."""
    one = store.install(make("1"), judge).installed
    fields = json.loads(store.places.record(one.id).read_text())

    assert fields["path"] is None
    assert set(fields) == {"format", "id", "name", "version", "manifest_sha256", "path", "verified"}
