# SPDX-License-Identifier: Apache-2.0
"""Notes of running servers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from dpfedge.store.places import Places, runtime_folder
from dpfedge.store.serving import Server, _start_of, announce, servers, stale_notes


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A store's places, with the folder for notes."""
    places = Places(tmp_path / "store")
    places.serving.mkdir(parents=True)
    return places


def test_announce__is_found_by_name_and_store(places: Places, tmp_path: Path) -> None:
    """And by no other."""
    note = announce(places, "voice", tmp_path / "s.sock")

    assert note == places.serving / f"{os.getpid()}.json"
    assert [(one.pid, one.socket) for one in servers(places, "voice")] == [(os.getpid(), str(tmp_path / "s.sock"))]
    (tmp_path / "link").symlink_to(places.root)
    assert servers(Places(tmp_path / "link"), "voice") == servers(places, "voice")
    assert servers(places, "other") == []
    assert servers(Places(tmp_path / "elsewhere"), "voice") == []
    assert stale_notes(places.serving) == []


def test_announce__in_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    """The note lies in the user's runtime folder; a server without a socket says so."""
    places = Places(tmp_path / "read-only")
    note = announce(places, "voice", None)

    assert note is not None
    assert note.parent == runtime_folder() / "serving"
    assert [one.socket for one in servers(places, "voice")] == [None]


def test_announce__nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody can tell this server anything."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))

    assert announce(Places(tmp_path / "x"), "voice", None) is None


def test_notes__in_somebody_elses_folder_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one written there."""
    places = Places(tmp_path / "read-only")
    assert announce(places, "voice", None) is not None
    user = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: user + 1)

    assert servers(places, "voice") == []
    assert announce(places, "voice", None) is None


def test_servers__that_are_gone_do_not_count(places: Places) -> None:
    """Also when another process has the pid now, and when the note is damaged."""
    note = announce(places, "voice", None)
    assert note is not None
    fields = json.loads(note.read_text())
    note.write_text(json.dumps({**fields, "started": fields["started"] + 1}))
    (places.serving / "1.json").write_text(json.dumps({**fields, "pid": 1 << 30}))
    (places.serving / "2.json").write_bytes(bytes(20))
    (places.serving / "3.json").write_text('{"pid": 1}')
    (places.serving / "4.json").write_text(json.dumps({**fields, "pid": 1 << 30, "started": 0}))
    (places.serving / "5.json").write_text(json.dumps({**fields, "socket": [1]}))
    (places.serving / "6.json").write_text("[" * 100_000)
    os.mkfifo(places.serving / "7.json")

    assert servers(places, "voice") == []
    assert len(stale_notes(places.serving)) == 8


def test_servers__that_ended_and_were_not_waited_for_do_not_count(places: Places) -> None:
    """A zombie answers nothing; in a container whose first process waits for nobody it stays for ever."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        server = Server(process.pid, _start_of(process.pid), str(places.root), "voice", None)
        assert server.alive()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert not server.alive()
