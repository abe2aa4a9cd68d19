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

from dpfedge.errors import StoreBusy
from dpfedge.store import Store
from dpfedge.store.lock import held, locked

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
