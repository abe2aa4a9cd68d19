# SPDX-License-Identifier: Apache-2.0
"""What may not be: ids, instances, tables and clocks that no deployment should have, at every door of the router.

Each is refused by name and at once, or counts as any other; none hangs, none is cut to fit. What the kernel's programs
make of such keys is tests/unit/routing/kernel's and tests/e2e/test_route_kernel.py's.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from dpfedge.cli import main
from dpfedge.errors import NoInstance, RouteError, Unavailable, UsageError
from dpfedge.hardware.fingerprint import read_prints
from dpfedge.hardware.source.root import Root
from dpfedge.routing import Instance, Published, Publisher, RouteLog, Router, Rule, Sample, hash_key
from dpfedge.routing.fingerprint import Privacy, fingerprint
from dpfedge.routing.kernel.client import connect
from dpfedge.routing.publication import default_path
from dpfedge.routing.replay import replay
from dpfedge.routing.salt import DailySalt
from dpfedge.serve.errors import error_body, error_status

T0 = 1735689600000
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
def router(tmp_path: Path) -> Router:
    """Two instances, published as the host's table."""
    router = Router(Publisher(default_path()), rule=Rule(up_hold_ms=0))
    router.assign([Instance("10.0.0.1:8000"), Instance("10.0.0.2:8000")])
    return router


def _doors(router: Router) -> dict[str, Any]:
    published = Published.open()
    return {
        "hash": hash_key, "router": router.route, "published": published.lookup, "table": router.table.lookup,
        "client": lambda model, user, ts: connect("127.77.0.1:9", model, user, ts, timeout_s=0.1),
    }  # fmt: skip


@pytest.mark.parametrize("id", ["", "a\0b", b"\0" * 120, b"\xff\xfe\x80", "ü" * 60, b"x" * 120])
def test_ids__of_any_bytes_are_ids(router: Router, id: str | bytes) -> None:
    """Empty, NUL, no UTF-8, and 120 bytes: the same hash at every door, whoever spells it as bytes."""
    same = id.encode() if isinstance(id, str) else id
    for first, second in ((id, "u"), ("m", id), (id, id)):
        wanted = hash_key(first, second, T0)
        as_bytes = [one if one in ("u", "m") else same for one in (first, second)]
        assert hash_key(*as_bytes, T0) == wanted
        decision = router.route(first, second, T0)
        assert (decision.hash, decision.index) == (wanted, Published.open().lookup(first, second, T0))
        assert decision.index == router.table.lookup(first, second, T0)


@pytest.mark.parametrize("id", [b"x" * 121, "ü" * 61, b"\0" * 121, "x" * 100_000])
def test_ids__of_121_bytes_are_refused_at_every_door(router: Router, id: str | bytes) -> None:
    """By the name of the field; nothing is cut, and no socket is opened for it."""
    for name, door in _doors(router).items():
        for arguments, where in (((id, "u", T0), "model"), (("m", id, T0), "user")):
            with pytest.raises(UsageError, match=f"{where}: the id is too long") as caught:
                door(*arguments)
            assert caught.value.allowed, name


@pytest.mark.parametrize("action", ["key", "explain"])
def test_ids__on_the_command_line(router: Router, action: str, capsys: Capture) -> None:
    """0 and 120 bytes and what is no UTF-8 are answered; 121 bytes are exit code 2."""
    del router
    for user, code in (("", 0), ("x" * 120, 0), ("\udcff\udcfe", 0), ("x" * 121, 2), ("\udcff" * 121, 2)):
        assert main(["route", action, "--model", "m", "--user", user, "--session-ms", "0"]) == code
        assert ("user: the id is too long; found 121 bytes" in capsys.readouterr().err) is (code == 2)


def test_nobody__healthy_is_a_503_with_the_health_map(router: Router, capsys: Capture) -> None:
    """At once, at every door; not before the last one is out, and no longer than it is."""
    for name in ("10.0.0.1:8000", "10.0.0.2:8000"):
        assert router.route("m", "u", T0).instance
        router.sample(name, Sample(0.1, 0.9, fatal_errors=1))
    doors = _doors(router)
    del doors["hash"], doors["table"]  # a table alone knows no health
    for door in doors.values():
        with pytest.raises(NoInstance, match="no instance can serve the request") as caught:
            door("m", "u", T0)
        assert [row["healthy"] for row in caught.value.health.values()] == [False, False]
        assert (error_status(caught.value), len(error_body(caught.value)["error"]["health"])) == (503, 2)
    assert main(["route", "explain", "--model", "m", "--user", "u", "--session-ms", "0"]) == 1
    assert "health map {10.0.0.1:8000: health 0.0, healthy False" in capsys.readouterr().err
    router.sample("10.0.0.2:8000", Sample(0.1, 0.9))
    assert router.route("m", "u", T0).instance == "10.0.0.2:8000"


def test_nobody__there_at_all(tmp_path: Path, capsys: Capture) -> None:
    """An empty list, and weights of 0, are no instances."""
    router = Router()
    with pytest.raises(NoInstance) as caught:
        router.route("m", "u", T0)
    assert caught.value.health == {}
    path = tmp_path / "none.json"
    for rows in ([], [{"name": "a", "weight": 0}]):
        path.write_text(json.dumps(rows))
        session = ["--model", "m", "--user", "u", "--session-ms", "0"]
        assert main(["route", "explain", *session, "--instances", str(path)]) == 1
        assert "no instance can serve the request" in capsys.readouterr().err


def test_names__that_two_have(router: Router, tmp_path: Path, capsys: Capture) -> None:
    """Refused in a file, by `assign`, by `join`; what was published stays."""
    path, generation = tmp_path / "twins.json", router.published.generation
    path.write_text(json.dumps([{"name": "a"}, {"name": "b"}, {"name": "a"}]))
    for command in (["table"], ["explain", "--model", "m", "--user", "u", "--session-ms", "0"]):
        assert main(["route", *command, "--instances", str(path)]) == 2
        assert "twins.json[2]: two instances have one name; found 'a'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="two instances have one name"):
        router.assign([Instance("a"), Instance("a", 2)])
    with pytest.raises(UsageError, match="an instance of this name is here"):
        router.join("10.0.0.1:8000")
    assert (router.published.generation, list(router.health_map())) == (generation, ["10.0.0.1:8000", "10.0.0.2:8000"])


def test_table__of_another_version(router: Router, tmp_path: Path, capsys: Capture) -> None:
    """Whoever reads it is told; a publisher replaces it and leaves the file to those who understand it."""
    path = default_path()
    newer = bytearray(path.read_bytes())
    newer[8:12] = struct.pack("=I", 2)
    other = tmp_path / "newer"
    other.write_bytes(newer)
    with pytest.raises(RouteError, match="another version; found version 2; allowed version 1"):
        Published.open(other)
    session = ["--model", "m", "--user", "u", "--session-ms", "0"]
    assert main(["route", "explain", *session, "--table", str(other)]) == 1
    assert "another version; found version 2" in capsys.readouterr().err
    with pytest.raises(RouteError, match="another version"):
        connect("127.77.0.1:9", "m", "u", T0, table=other)
    with other.open("rb") as reader, Publisher(other) as publisher:
        Router(publisher).assign([Instance("a")])
        assert Published.open(other).lookup("m", "u", T0) == 0
        assert reader.read(12) == newer[:12]
    with pytest.raises(Unavailable):
        Published.open(tmp_path / "none")
    assert router.route("m", "u", T0)


@pytest.mark.parametrize("now_s", [0, -1, 1 << 31, 253_402_300_800], ids=["1970", "before", "2038", "10000"])
def test_clock__at_1970_and_beyond(router: Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now_s: int) -> None:
    """Health knows the steady clock only; a line of the log shows the time and is proved; a salt is of one day."""
    monkeypatch.setattr(time, "time_ns", lambda: now_s * 10**9)
    monkeypatch.setattr(time, "time", lambda: float(now_s))
    with RouteLog(tmp_path / "log", ids=True) as log:
        logged = Router(log=log)
        logged.assign([Instance("a"), Instance("b")])
        for ts_ms in (0, 1, (1 << 64) - 1):  # when a session began by such a clock is a number like any other
            assert logged.route("m", "u", ts_ms).hash == hash_key("m", "u", ts_ms)
        logged.sample("a", Sample(0.1, 0.9, fatal_errors=1))
        assert logged.route("m", "u", 0).instance == "b"
    assert replay(tmp_path / "log").proved
    router.sample("10.0.0.1:8000", Sample(0.1, 0.9, fatal_errors=1))
    assert not router.healthy("10.0.0.1:8000")
    salts, prints = DailySalt(tmp_path / "salt"), read_prints(Root())
    first, second = (fingerprint(prints, Privacy.ANONYMOUS, salts) for _ in range(2))
    assert first.digest == second.digest
    monkeypatch.setattr(time, "time_ns", lambda: (now_s + 86400) * 10**9)
    assert fingerprint(prints, Privacy.ANONYMOUS, salts).digest != first.digest


@pytest.mark.parametrize("ts_ms", [-1, 1 << 64, 1.5, "0", None])
def test_time__that_is_none(router: Router, ts_ms: Any) -> None:
    """Of a session: refused, never wrapped around."""
    for door in _doors(router).values():
        with pytest.raises((UsageError, TypeError)):
            door("m", "u", ts_ms)


def test_client__when_the_instance_is_gone(router: Router) -> None:
    """The table is right and nobody is there: an error of the connection, in bounded time."""
    del router
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = "{}:{}".format(*gone.getsockname())
    with Publisher(default_path().with_name("own")) as publisher:
        Router(publisher).assign([Instance(address)])
        with pytest.raises(OSError, match="refused"):
            connect("127.77.0.1:9", "m", "u", T0, table=default_path().with_name("own"), timeout_s=5)
