# SPDX-License-Identifier: Apache-2.0
"""One process changes a store at a time; the next one waits, then is told for whom."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import StoreBusy, StoreError
from dpfedge.store import Store
from dpfedge.store.lock import held, locked, ready

HOLDER = """
import sys
from pathlib import Path
from dpfedge.store.lock import locked
with locked(Path(sys.argv[1]), "dpfedge install x.dpfbin"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_locked__names_the_holder_and_survives_its_death(tmp_path: Path) -> None:
    """The message is exact; a killed holder holds nothing."""
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"held\n"
        with pytest.raises(StoreBusy) as caught, locked(path, "dpfedge gc", 0.2):
            pytest.fail("two had it")
        one.kill()
    with locked(path, "dpfedge gc", 5):
        assert path.read_text() == f"pid {os.getpid()} (dpfedge gc)"

    assert str(caught.value) == (
        f"{tmp_path}: another process is changing the store, waited 0.2 s; "
        f"found pid {one.pid} (dpfedge install x.dpfbin); wait for it, or end it, and try again"
    )


def test_locked__waits_for_the_holder(tmp_path: Path) -> None:
    """Who ends in time is waited for."""
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        assert one.stdin is not None
        one.stdout.readline()
        one.stdin.close()
        with locked(path, "dpfedge gc", 30):
            pass

    assert path.read_text() == ""


def test_locked__waits_not_for_ever_for_no_number(tmp_path: Path) -> None:
    """`--wait nan` is no time at all."""
    path = tmp_path / "lock"
    with locked(path, "dpfedge gc"), pytest.raises(StoreBusy, match="waited nan s"), locked(path, "x", float("nan")):
        pass


def test_locked__writes_over_no_file_that_a_link_leads_to(tmp_path: Path) -> None:
    """Who owns a store must not choose what root, changing it, writes to."""
    path, other = tmp_path / "lock", tmp_path / "other"
    other.write_text("kept")
    path.symlink_to(other)
    with pytest.raises(StoreError, match="no store can be made there"), locked(path, "dpfedge gc", 0.0):
        pytest.fail("it was followed")
    assert other.read_text() == "kept"


def test_held__by_somebody_or_nobody(tmp_path: Path) -> None:
    """To ask holds nothing and makes no file."""
    path = tmp_path / "lock"
    assert not held(path)
    assert not path.exists()
    with locked(path, "dpfedge seal x"):
        assert held(path)
    assert not held(path)
    with locked(path, "dpfedge seal x", 0.0):
        pass


def test_ready__whoever_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's file makes way unless it is held; all may ask for the new one, also under a private umask."""
    path = tmp_path / "lock"
    before = os.umask(0o077)
    try:
        ready(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    path.write_text("the same one")
    ready(path)
    assert path.read_text() == "the same one"
    monkeypatch.setattr("dpfedge.store.lock.os.access", lambda place, how: False)
    with locked(path, "dpfedge seal x"):
        ready(path)
        assert path.read_text() == f"pid {os.getpid()} (dpfedge seal x)"
    path.write_text("root's")
    ready(path)
    assert path.read_text() == ""


def test_sealing__after_root_did(
    store: Store, make: Callable[..., Path], judge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns the folder can seal again."""
    one, opened = store.install(make("1"), judge).installed, os.open
    roots = store.places.sealing(one.id)
    roots.write_text("root's")

    def refused(path: Any, flags: int, *mode: int, **more: Any) -> int:
        if flags & os.O_RDWR and path == roots and roots.read_text() == "root's":
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode, **more)

    monkeypatch.setattr("dpfedge.store.lock.os.open", refused)
    monkeypatch.setattr("dpfedge.store.lock.os.access", lambda place, how: roots.read_text() != "root's")
    with store.sealing(one.id, "dpfedge seal voice"):
        assert held(roots)


def test_sealing__begins_when_the_store_is_free(store: Store, make: Callable[..., Path], judge: Any) -> None:
    """What changes the store may be deleting this very package."""
    one = store.install(make("1"), judge).installed
    busy = pytest.raises(StoreBusy, match=r"changing the store.*\(dpfedge gc\)")
    with store.changing("dpfedge gc"), busy, store.sealing(one.id, "dpfedge seal voice"):
        pytest.fail("it began")


def test_sealing__one_at_a_time_beside_installs(store: Store, make: Callable[..., Path], judge: Any) -> None:
    """A second one of the same package is told by whom it is built; another package, installs and `gc` are free."""
    one, two = (store.install(make(version), judge).installed for version in ("1", "2"))
    with store.sealing(one.id, "dpfedge seal voice"):
        with pytest.raises(StoreBusy) as caught, store.sealing(one.id, "dpfedge seal voice"):
            pytest.fail("two had it")
        with store.sealing(two.id, "dpfedge seal voice"):
            pass
        assert store.rollback("voice") == one
        assert store.install(make("3"), judge).switched
        store.gc()
    assert str(caught.value) == (
        f"{store.places.files}: another process builds a seal for this package, waited 0 s; "
        f"found pid {os.getpid()} (dpfedge seal voice); wait for it, or end it, and try again"
    )
    with store.sealing(one.id, "dpfedge seal voice"):
        pass
