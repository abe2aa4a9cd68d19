# SPDX-License-Identifier: Apache-2.0
"""The log: lines, a full file, a full disk, a writer that died, and files of others."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dpfedge import limits
from dpfedge.errors import RouteError
from dpfedge.routing.log import RouteLog, id_text, read_log, text_id

STATE = {"bits": 8, "key_seed": "07", "generation": 1, "digest": "00", "instances": []}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [line for _, line in read_log(path)]


def test_log__lines_are_what_was_told(tmp_path: Path) -> None:
    """Each with its time; the format and its version first."""
    with RouteLog(tmp_path / "log") as log:
        log.begin(STATE)
        log.change({"name": "a"}, STATE)
        log.decision({"slot": 5})
    first, change, decision = _lines(tmp_path / "log")
    assert (first["log"], first["version"], first["bits"]) == ("dpfedge-route-log", 1, 8)
    assert (change["change"], decision["decision"]) == ({"name": "a"}, {"slot": 5})
    assert all(line["at"] > 1_600_000_000_000 for line in (first, change, decision))
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_log__begins_anew_when_full(tmp_path: Path) -> None:
    """The new file starts with the state that stands; the old one is kept, the one before is not."""
    with RouteLog(tmp_path / "log", max_bytes=400) as log:
        log.begin(STATE)
        for generation in range(2, 40):
            log.change({"generation": generation}, {**STATE, "generation": generation})
            log.decision({"generation": generation})
    for name in ("log", "log.1"):
        lines = _lines(tmp_path / name)
        assert "log" in lines[0]
        assert (tmp_path / name).stat().st_size < 400 + 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
    assert _lines(tmp_path / "log")[-1]["decision"]["generation"] == 39


def test_log__full_disk_loses_lines_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call fails; the count is written when there is room again."""
    with RouteLog(tmp_path / "log") as log:
        log.begin(STATE)
        write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        log.decision({"n": 1})
        log.decision({"n": 2})
        assert log.lost == 2
        monkeypatch.undo()
        log.decision({"n": 3})
        assert log.lost == 0
    assert [line.get("lost") or line.get("decision") for line in _lines(tmp_path / "log")] == [None, 2, {"n": 3}]


def test_log__a_medium_that_is_pulled_fails_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither writing nor cutting off works, half a line stays; when it works again the file has whole lines only."""

    def torn(fd: int, data: bytes) -> int:
        write(fd, data[:10])
        raise OSError(errno.EIO, "input/output error")

    def refused(fd: int, size: int) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    with RouteLog(tmp_path / "log") as log:
        log.begin(STATE)
        write = os.write
        with monkeypatch.context() as bad:
            bad.setattr(os, "write", torn)
            bad.setattr(os, "ftruncate", refused)
            log.decision({"n": 1})
            log.change({"n": 2}, STATE)
        log.decision({"n": 3})
    _, lost, last = _lines(tmp_path / "log")
    assert (lost["lost"], last["decision"]) == (2, {"n": 3})


def test_log__a_folder_that_goes_away_fails_no_request(tmp_path: Path) -> None:
    """A full log without a place for the next file loses lines, says how many, and does not grow."""
    folder = tmp_path / "logs"
    folder.mkdir()
    with RouteLog(folder / "log", max_bytes=200) as log:
        log.begin(STATE)
        while os.fstat(log._fd).st_size < 200:
            log.decision({"n": 1})
        folder.rename(tmp_path / "away")
        log.decision({"n": 2})
        log.change({"n": 3}, STATE)
        assert (log.lost, os.fstat(log._fd).st_size < 400) == (2, True)
        folder.mkdir()
        log.decision({"n": 4})
    first, lost, last = _lines(folder / "log")
    assert ("log" in first, lost["lost"], last["decision"]) == (True, 2, {"n": 4})


def test_log__what_is_written_after_its_end_is_lost(tmp_path: Path) -> None:
    """Nothing is written into a file that has its number by now."""
    log = RouteLog(tmp_path / "log")
    log.begin(STATE)
    log.close()
    with (tmp_path / "other").open("wb"):
        log.decision({"n": 1})
    assert (log.lost, (tmp_path / "other").stat().st_size) == (1, 0)


def test_log__goes_on_behind_a_writer_that_died(tmp_path: Path) -> None:
    """Its half line is no line for readers, and is cut off by the next writer."""
    with RouteLog(tmp_path / "log") as log:
        log.begin(STATE)
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"decision": {"slo')
    assert len(_lines(tmp_path / "log")) == 1
    with RouteLog(tmp_path / "log") as log:
        log.begin(STATE)
    assert len(_lines(tmp_path / "log")) == 2
    (tmp_path / "log").write_bytes(b"no line at all")
    RouteLog(tmp_path / "log").close()
    assert (tmp_path / "log").stat().st_size == 0


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("hello", "log:1: the line is no JSON"),
        ("[" * 50_000, "no JSON"),
        ("[]", "no line of a routing log"),
        ('{"a": 1}', "no line of a routing log"),
        ('{"log": "dpfedge-route-log", "version": 2}', "another version; found 'dpfedge-route-log' 2"),
        ('{"log": "other", "version": 1}', "another version"),
    ],
)
def test_read__says_which_line_is_none(tmp_path: Path, text: str, what: str) -> None:
    """File, line and reason."""
    (tmp_path / "log").write_text(text + "\n")
    with pytest.raises(RouteError, match=what):
        _lines(tmp_path / "log")


def test_read__bounds_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than any; a file that is not there; a folder that cannot be written."""
    (tmp_path / "log").write_text(json.dumps({"decision": "x" * 200}) + "\n")
    monkeypatch.setattr(limits, "ROUTE_LINE_MAX_BYTES", 100)
    with pytest.raises(RouteError, match="log:1: the line is too long"):
        _lines(tmp_path / "log")
    with pytest.raises(RouteError, match="cannot be read"):
        _lines(tmp_path / "none")
    with pytest.raises(RouteError, match="cannot be written"):
        RouteLog(tmp_path / "none" / "log")


def test_id__any_bytes_come_back() -> None:
    """Text as text, the rest in hex."""
    for id in ("alice", "用户", b"\xff\0"):
        assert text_id(id_text(id)) == id
    assert text_id(id_text("é".encode())) == "é"
    for bad in (5, {"hex": "zz"}, {"x": ""}, None):
        with pytest.raises(ValueError, match=r"id|hex"):
            text_id(bad)
