# SPDX-License-Identifier: Apache-2.0
"""The recorder's file: what was written is read back, also torn, wrapped and after the writer was killed."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from dpfedge.errors import FormatError, UsageError
from dpfedge.pipeline import flight
from dpfedge.pipeline.flight import LANES, FlightFile, Lane, Recording, RecordKind, lane_bytes

LANE = 2048


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a small recording goes: lanes of 2 KiB."""
    monkeypatch.setattr(flight, "lane_bytes", lambda seconds, audio: LANE)
    return tmp_path / "flight"


def _fill(lane: Lane, count: int, size: int = 64) -> None:
    for number in range(count):
        lane.write(RecordKind.SENT, 1, 2, number.to_bytes(4, "little") * (size // 4))


def _numbers(recording: Recording) -> list[int]:
    return [int.from_bytes(record.payload[:4], "little") for record in recording.records]


def test_records__come_back_in_order_of_time(path: Path) -> None:
    """From every lane, with all their fields."""
    file = FlightFile(path, 10, audio=False)
    for number in range(6):
        file.lanes[number % LANES].write(RecordKind.OPENED, 7, 3, bytes([number]) * number)
    recording = Recording(path)

    assert [record.payload for record in recording.records] == [bytes([n]) * n for n in range(6)]
    assert {(record.kind, record.runtime, record.link) for record in recording.records} == {(RecordKind.OPENED, 7, 3)}
    assert recording.complete_since_ns == (0, 0, 0)
    assert (recording.pid, recording.seconds) == (os.getpid(), 10)
    assert path.stat().st_mode & 0o777 == 0o600
    file.close()


def test_full_lane__forgets_the_oldest(path: Path) -> None:
    """The file keeps its size; what is left is whole and the newest."""
    file = FlightFile(path, 10, audio=False)
    size = path.stat().st_size
    for count in range(1, 100):
        _fill(file.lanes[0], 1, 52)
        file.lanes[0].write(RecordKind.SENT, 0, 0, count.to_bytes(4, "little"))
        found = _numbers(Recording(path))
        assert found[-1] == count
    recording = Recording(path)
    kept = [number for number in _numbers(recording) if number]
    assert kept == list(range(kept[0], 100))
    assert LANE // 2 < sum(len(record.payload) + 40 for record in recording.records) <= LANE
    assert recording.complete_since_ns[0] == recording.records[0].at_ns
    assert path.stat().st_size == size
    file.close()


@pytest.mark.parametrize("at", range(0, 104, 5))
def test_torn_record__is_not_there(path: Path, at: int) -> None:
    """Any byte of the newest record may be wrong; the others are read."""
    file = FlightFile(path, 10, audio=False)
    _fill(file.lanes[0], 3)
    file.close()
    data = bytearray(path.read_bytes())
    data[4096 + 2 * 104 + at] ^= 0xFF
    path.write_bytes(data)

    assert _numbers(Recording(path)) == ([0, 1] if at < 36 or at >= 40 else [0, 1, 2])


def test_killed_writer__leaves_a_readable_file(path: Path) -> None:
    """At a moment of nobody's choosing."""
    file = FlightFile(path, 10, audio=False)
    pid = os.fork()
    if not pid:
        while True:
            _fill(file.lanes[0], 1000, 100)
    while len(Recording(path).records) < 10:
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    file.close()

    found = _numbers(Recording(path))
    assert len(found) >= LANE // 160 - 1
    assert all(after == (before + 1) % 1000 for before, after in pairwise(found))


def test_too_long_record__is_left_out(path: Path) -> None:
    """It would push out what it belongs to."""
    file = FlightFile(path, 10, audio=False)
    file.lanes[0].write(RecordKind.SENT, 0, 0, bytes(LANE // 4))
    assert (file.lanes[0].too_long, Recording(path).records) == (1, [])
    file.close()


def test_description__of_the_newest_runtimes(path: Path) -> None:
    """Three of them; a torn one is left out."""
    file = FlightFile(path, 10, audio=False)
    for number in range(4):
        file.describe(number, {"package": f"p{number}", "links": []})
    assert {number: facts["package"] for number, facts in Recording(path).runtimes.items()} == {
        1: "p1",
        2: "p2",
        3: "p3",
    }
    file.close()
    data = bytearray(path.read_bytes())
    data[1024 + 10] ^= 1
    path.write_bytes(data)
    assert sorted(Recording(path).runtimes) == [1, 2]


def test_file__of_before_is_kept(path: Path) -> None:
    """A restart must not overwrite what a crash left; what is no recording is not touched."""
    first = FlightFile(path, 10, audio=False)
    _fill(first.lanes[0], 1)
    first.close()
    FlightFile(path, 10, audio=False).close()
    assert _numbers(Recording(path.with_name("flight.previous"))) == [0]

    path.write_bytes(b"my letters")
    with pytest.raises(UsageError, match="exists and is no recording"):
        FlightFile(path, 10, audio=False)
    assert path.read_bytes() == b"my letters"


def test_file__that_somebody_writes_is_left_alone(path: Path) -> None:
    """Two servers with the same flag; once the first is gone, its file is one of before."""
    first = FlightFile(path, 10, audio=False)
    with pytest.raises(UsageError, match="another server records into this file"):
        FlightFile(path, 10, audio=False)
    assert not path.with_name("flight.previous").exists()
    first.close()
    FlightFile(path, 10, audio=False).close()
    assert path.with_name("flight.previous").exists()


def test_file__that_cannot_be_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is not there, or a disk without room: nothing is left behind."""
    with pytest.raises(UsageError, match="No such file"):
        FlightFile(path / "x", 10, audio=False)

    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UsageError, match="No space left on device"):
        FlightFile(path, 10, audio=False)
    assert not path.exists()


def test_reader__refuses_what_is_no_recording(path: Path) -> None:
    """By its first bytes, its version and its size."""
    FlightFile(path, 10, audio=False).close()
    whole = path.read_bytes()
    for data, text in (
        (b"", "not a flight recording"),
        (b"x" * 5000, "not a flight recording"),
        (whole[:8] + b"\2" + whole[9:], "unknown version"),
        (whole[:-1], "the size does not fit"),
        (whole[:16] + b"\xff" * 8 + whole[24:], "the size does not fit"),
    ):
        path.write_bytes(data)
        with pytest.raises(FormatError, match=text):
            Recording(path)
    with pytest.raises(UsageError, match="cannot be read"):
        Recording(path / "x")


def test_lane__is_as_long_as_asked_for() -> None:
    """Seconds within bounds."""
    assert lane_bytes(1, False) == 2 << 20
    assert lane_bytes(600, True) == 600 * (128 << 10)
    with pytest.raises(UsageError, match="--flight-seconds"):
        lane_bytes(0, False)
    with pytest.raises(UsageError, match="1 to 600"):
        lane_bytes(601, False)
