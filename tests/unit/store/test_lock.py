# SPDX-License-Identifier: Apache-2.0
"""One process changes a store at a time; the next one waits, then is told for whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpfedge.errors import StoreBusy
from dpfedge.store.lock import locked

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
