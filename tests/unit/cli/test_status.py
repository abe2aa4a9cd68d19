# SPDX-License-Identifier: Apache-2.0
"""`dpfedge status`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dpfedge.cli import main, status
from dpfedge.errors import Unavailable
from dpfedge.serve.running import Server

Output = pytest.CaptureFixture[str]
SERVER = Server(7, ("/run/serve.sock",), (("127.0.0.1", 8080), ("::1", 8081)))
MIB = 1 << 20
TOLD: dict[str, Any] = {
    "ready": True, "active": 1, "package": "voice", "board": "host", "requests": 2,
    "stages": {"llm": {"state": "ready", "pid": 9, "restarts": 1, "rss_bytes": 200 * 10**6, "pss_bytes": 150 * 10**6}},
    "server": {"pid": 7, "rss_bytes": 50 * 10**6, "pss_bytes": 40 * 10**6},
    "zygote": {"pid": 8},
    "links": {"source.llm": {"dropped": 3, "corrupt": 0}, "llm.sink": {"dropped": 0}},
}  # fmt: skip
WEIGHTS = {"mapped": 100 * 10**6, "rss": 60 * 10**6, "pss": 30e6, "private": 10 * 10**6}


@pytest.fixture(autouse=True)
def _servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def held(pid: int) -> dict[str, Any]:
        if pid == 8:
            raise Unavailable("memory of the process cannot be read", where="process 8")
        sections = {"weights": WEIGHTS} if pid == 9 else {}
        return {"/v.dpfbin": {"name": "voice 1.0", "replaced": pid == 7, "sections": sections}}

    monkeypatch.setattr(status, "running", lambda: [SERVER])
    monkeypatch.setattr(status, "ask", lambda server: json.loads(json.dumps(TOLD)))
    monkeypatch.setattr(status, "holdings", held)


def test_status__for_people(capsys: Output) -> None:
    """Where it listens, what it serves, and a row per process; only links that lost something are shown."""
    assert main(["status"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "voice on host: ready, 2 requests, pid 7",
        "  http://127.0.0.1:8080  http://[::1]:8081  /run/serve.sock",
        "  package voice 1.0  /v.dpfbin, replaced on disk since it was opened",
        "  package voice 1.0  /v.dpfbin",
        "  process  pid  state  restarts       PSS       RSS  weights    alone",
        "  server   7    -             -   40.0 MB   50.0 MB        -        -",
        "  zygote   8    -             -         -         -        -        -",
        "  llm      9    ready         1  150.0 MB  200.0 MB  60.0 MB  10.0 MB",
        "  link source.llm: 3 dropped",
    ]


def test_status__of_what_was_built_on_the_device(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seal that is used, an opening that is, and why others are not."""
    used = {**TOLD, "seal": {"path": "/v.dpfbin.dpfseal", "stale": []}}
    used["stages"] = {"llm": {**TOLD["stages"]["llm"], "facts": {"prefix": "seal"}}}
    monkeypatch.setattr(status, "ask", lambda server: used)
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4:6] == ["  seal /v.dpfbin.dpfseal", "  llm: opening baked in the seal"]

    degrade = {"steps": ["warm", "hot"], "level": 1, "left_out": ["v: step saving is left out: why"]}
    monkeypatch.setattr(status, "ask", lambda server: {**TOLD, "degrade": degrade})
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4:6] == ["  ladder: step 1 of 2: warm", "  v: step saving is left out: why"]

    refused = {**TOLD, "seal": {"path": None, "stale": ["seal v: refused: driver: …"]}}
    refused["stages"] = {"llm": {**TOLD["stages"]["llm"], "facts": {"prefix": "baked prefix of llm: refused: …"}}}
    monkeypatch.setattr(status, "ask", lambda server: refused)
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4:6] == ["  seal v: refused: driver: …", "  llm: baked prefix of llm: refused: …"]


def test_status__of_native_sessions(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose, since when, what came and went; sound that waits only where some does."""
    row = {"pid": 11, "user": 0, "open_ms": 61_400, "state": "answering", "utterances": 3, "answers": 2, "events": 9}
    row |= {"heard_bytes": 1_250_000, "sound_bytes": 400_000, "waiting_bytes": 0}
    told = {**TOLD, "native": {"4": row, "6": {**row, "pid": 12, "waiting_bytes": 8_000_000}}}
    monkeypatch.setattr(status, "ask", lambda server: told)
    assert main(["status"]) == 0
    said = "answering, open for 61 s, utterances 3, answers 2, 1.2 MB heard, 0.4 MB sent"
    assert capsys.readouterr().out.splitlines()[4:6] == [
        f"  native session 4 of process 11: {said}",
        f"  native session 6 of process 12: {said}, 8.0 MB waiting for room",
    ]


def test_status__of_where_stages_run(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device with its stages, and the stage that an operator let run on less."""
    slow = {"target": "cpu-v3", "backend": "cpu", "device": "cpu:0", "degraded": "cpu instead of: target gpu: …"}
    fast = {"target": "gpu", "backend": "cuda", "device": "cuda:0", "degraded": None}
    row = TOLD["stages"]["llm"]
    stages = {"llm": {**row, "placed": fast}, "voice": {**row, "placed": slow}}
    monkeypatch.setattr(status, "ask", lambda server: {**TOLD, "stages": stages})
    assert main(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[4:7] == [
        "  voice: degraded: cpu instead of: target gpu: …", "  on cuda:0 by gpu: llm", "  on cpu:0 by cpu-v3: voice",
    ]  # fmt: skip


def test_status__of_links_in_a_file(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without memfds goes on saying so."""
    for sealed, lines in ((True, 0), (False, 1)):
        monkeypatch.setattr(
            status, "ask", lambda server, sealed=sealed: {**TOLD, "arena": {"nbytes": 9, "sealed": sealed}}
        )
        assert main(["status"]) == 0
        assert capsys.readouterr().out.count("  links: in an unsealed file of the run directory") == lines


def test_status__of_a_stage_that_cannot_be_started(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why it is not there now."""
    failure = {"what": "the process could not be started", "found": "Too many open files", "allowed": None}
    told = {**TOLD, "stages": {"llm": {**TOLD["stages"]["llm"], "state": "restarting", "failure": failure}}}
    monkeypatch.setattr(status, "ask", lambda server: told)
    assert main(["status"]) == 0
    assert "  llm: the process could not be started; found Too many open files\n" in capsys.readouterr().out


def test_status__as_json(capsys: Output) -> None:
    """The same with every number; what could not be read is named beside its process."""
    assert main(["status", "--json", "7"]) == 0

    [server] = json.loads(capsys.readouterr().out)["servers"]
    assert (server["pid"], server["error"], server["package"]) == (7, None, "voice")
    rows = {row["name"]: row for row in server["processes"]}
    assert rows["llm"]["packages"]["/v.dpfbin"]["sections"]["weights"] == WEIGHTS
    assert rows["zygote"]["error"] == "process 8: memory of the process cannot be read"


def test_status__of_a_server_that_does_not_answer(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed with the reason; the others are not affected. For who named it, it is not available."""

    def silent(server: Server) -> dict[str, Any]:
        raise Unavailable("the server does not answer", where=str(server))

    monkeypatch.setattr(status, "ask", silent)
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "process 7: the server does not answer\n"
    assert main(["status", "7"]) == 5


def test_status__before_the_runtime_is_open(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A starting server says little."""
    monkeypatch.setattr(status, "ask", lambda server: {"ready": False, "active": 0})

    assert main(["status"]) == 0
    assert "no package yet on unknown board: not ready, 0 requests, pid 7" in capsys.readouterr().out


def test_status__of_nothing(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is no error; a server that was asked for and is not there is one, with the ids there are."""
    assert main(["status", "99"]) == 5
    assert "process 99: no dpfedge serve process of this user has this id; allowed 7" in capsys.readouterr().err
    assert main(["status", "--socket", "/no/such.sock"]) == 5

    monkeypatch.setattr(status, "running", list)
    assert main(["status"]) == 0
    assert "no dpfedge serve process of this user is running" in capsys.readouterr().out
