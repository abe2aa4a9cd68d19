# SPDX-License-Identifier: Apache-2.0
"""The salt of the day: shared while it counts, gone afterwards, whatever the clocks do."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from dpfedge.routing import salt as salts
from dpfedge.routing.salt import DailySalt, Moment, now, salt_path

DAY = 86400
NOON = Moment(20_000 * DAY + DAY // 2, 1000, "boot-a")


def _later(at: Moment, seconds: int, wall: int | None = None, boot: str | None = None) -> Moment:
    """Time passes by both clocks, or the wall clock says something of its own."""
    return Moment(at.wall_s + seconds if wall is None else wall, at.since_boot_s + seconds, boot or at.boot)


def test_salt__one_for_all_processes_of_a_day(tmp_path: Path) -> None:
    """And only for their user."""
    path = tmp_path / "route" / "salt"
    first = DailySalt(path).get(NOON)
    assert DailySalt(path).get(_later(NOON, 3600)) == first
    assert len(first.value) == 32
    assert first.shared
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("what", "at"),
    [
        ("the next day", _later(NOON, DAY // 2)),
        ("an hour back, over midnight", _later(NOON, 5, wall=NOON.wall_s - 13 * 3600)),
        ("a day by the other clock, the wall clock stands", _later(NOON, DAY, wall=NOON.wall_s)),
        ("the clock was lost", _later(NOON, 5, wall=0)),
        ("before 1970", _later(NOON, 5, wall=-5)),
        ("2038", _later(NOON, 5, wall=(1 << 31) + 5)),
        ("9999", _later(NOON, 5, wall=253_402_300_799)),
        ("another boot at the same time", _later(NOON, 5, boot="boot-b")),
        ("the other clock went back", Moment(NOON.wall_s, NOON.since_boot_s - 1, NOON.boot)),
    ],
)
def test_salt__a_new_one(what: str, at: Moment, tmp_path: Path) -> None:
    """And the old one is in the file no more; when the old time comes back the salt does not."""
    path = tmp_path / "salt"
    first, second = DailySalt(path).get(NOON), DailySalt(path).get(at)
    assert second.value != first.value
    assert first.value.hex() not in path.read_text()
    assert DailySalt(path).get(NOON).value != first.value


def test_salt__a_clock_that_stands_in_1970_still_rotates(tmp_path: Path) -> None:
    """A board without a battery: every day by the time since its start."""
    path, start = tmp_path / "salt", Moment(0, 10, "boot-a")
    found = [
        DailySalt(path).get(Moment(0, start.since_boot_s + hours * 3600, "boot-a")).value for hours in range(0, 73, 6)
    ]
    assert len(set(found)) == 4


@pytest.mark.parametrize(
    "left",
    [b'{"salt": "00", "wall_s": 1e999, "since_boot_s": 1, "boot": ""}',
     b"", b"{", b"[]", b'{"salt": "00"}', b'{"salt": "zz", "wall_s": 1, "since_boot_s": 1, "boot": ""}',
     b'{"salt": "00", "wall_s": 1728043200, "since_boot_s": 1000, "boot": "boot-a"}', b"\xff" * 5000],
)  # fmt: skip
def test_salt__what_a_writer_that_died_left(left: bytes, tmp_path: Path) -> None:
    """Is no salt."""
    path = tmp_path / "salt"
    path.write_bytes(left)
    first = DailySalt(path).get(NOON)
    assert (len(first.value), first.shared, DailySalt(path).get(NOON)) == (32, True, first)


def test_salt__held_by_one_that_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever: a salt of one's own, which says so, and rotates too."""
    monkeypatch.setattr(salts, "_PAUSE_S", 0.0)
    path = tmp_path / "salt"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    own = DailySalt(path)
    first = own.get(NOON)
    assert (first.shared, own.get(NOON)) == (False, first)
    assert own.get(_later(NOON, DAY)).value != first.value
    assert DailySalt(path).get(NOON).value != first.value
    os.close(fd)


def test_salt__no_folder_and_no_link(tmp_path: Path) -> None:
    """Where no file can be, and where one leads elsewhere, the salt is this process's own."""
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    found = [DailySalt(place).get(NOON).shared for place in (tmp_path / "file/salt", tmp_path / "link")]
    assert found == [False, False]
    assert not (tmp_path / "target").exists()


def test_now__of_this_machine() -> None:
    """The clocks tell something; the day follows."""
    moment = now()
    assert moment.since_boot_s >= 0
    assert moment.day == moment.wall_s // DAY
    assert salt_path({"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7/dpfedge/route/salt")
