# SPDX-License-Identifier: Apache-2.0
"""`dpfedge route attach|detach|status`, where the kernel does not route; what it does there is tested end to end."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dpfedge.cli import main
from dpfedge.errors import Unavailable
from dpfedge.routing.kernel.control import ask, name_of
from dpfedge.routing.publication import Published

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run directory, and so a control socket, of this test; a kernel that takes nothing."""

    def refuse(**how: object) -> NoReturn:
        raise Unavailable("the kernel is too old to route", found="4.9.337-tegra", allowed="5.15 or newer")

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("dpfedge.routing.kernel.attachment.load", refuse)
    (tmp_path / "instances.json").write_text('[{"name": "10.0.0.1:80"}]')


def _attach(tmp_path: Path, *more: str) -> int:
    return main(
        ["route", "attach", "--service", "10.255.0.1:8000", "--instances", str(tmp_path / "instances.json"), *more]
    )


def _later(do: Any) -> threading.Thread:
    """Does it as soon as the routing is held."""

    def loop() -> None:
        for _ in range(2000):
            try:
                ask({"do": "status"}, name=name)
                break
            except Unavailable:
                threading.Event().wait(0.005)
        do()

    name = name_of()
    thread = threading.Thread(target=loop)
    thread.start()
    return thread


def test_attach__in_user_space_says_so(tmp_path: Path, capsys: Capture) -> None:
    """The reason on stderr and in status; the table is published for clients; detach ends it."""
    seen: list[dict[str, Any]] = []

    def do() -> None:
        seen.extend([ask({"do": "status"}, name=name), ask({"do": "detach"}, name=name, until_gone=True)])

    name = name_of()
    thread = _later(do)
    assert _attach(tmp_path, "--json") == 0
    thread.join()
    printed = capsys.readouterr()
    assert json.loads(printed.out)["mode"] == seen[0]["mode"] == "user space"
    assert "the kernel cannot route here: the kernel is too old to route; found 4.9.337-tegra" in printed.err
    assert main(["route", "explain", "--model", "m", "--user", "u", "--session-ms", "1"]) == 0
    assert "10.0.0.1:80" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "more", "bits"), [(1, [], 16), (9, [], 17), (9, ["--bits", "18"], 18)], ids=["one", "nine", "said"]
)
def test_attach__publishes_as_many_slots_as_the_instances_want(
    tmp_path: Path, capsys: Capture, count: int, more: list[str], bits: int
) -> None:
    """Or as was said."""
    (tmp_path / "instances.json").write_text(json.dumps([{"name": f"10.0.0.{i + 1}:80"} for i in range(count)]))
    seen: list[int] = []

    def do() -> None:
        seen.append(Published.open().bits)
        ask({"do": "detach"}, name=name, until_gone=True)

    name = name_of()
    thread = _later(do)
    assert _attach(tmp_path, *more) == 0
    thread.join()
    assert seen == [bits]


def test_attach__bits_of_a_table_that_is_published(capsys: Capture) -> None:
    """They are its publisher's."""
    assert main(["route", "attach", "--service", "10.255.0.1:8000", "--bits", "17"]) == 2
    assert "--bits: a published table has its bits" in capsys.readouterr().err


def test_attach__ends_by_a_signal(tmp_path: Path, capsys: Capture) -> None:
    """As text; exit code 0."""
    thread = _later(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert _attach(tmp_path) == 0
    thread.join()
    assert "mode        user space (legacy)" in capsys.readouterr().out


def test_attach__without_a_table(capsys: Capture) -> None:
    """There is nothing to route by."""
    assert main(["route", "attach", "--service", "10.255.0.1:8000"]) == 5
    assert "no routing table is published there" in capsys.readouterr().err


def test_attach__by_what_is_no_table(tmp_path: Path, capsys: Capture) -> None:
    """A file of something else, or of another version; instances of one name."""
    path = tmp_path / "table"
    path.write_bytes(b"DPFROUTE" + (9).to_bytes(4, "little") + bytes(8192))
    assert main(["route", "attach", "--service", "10.255.0.1:8000", "--table", str(path)]) == 1
    assert f"{path}: " in capsys.readouterr().err
    (tmp_path / "instances.json").write_text('[{"name": "10.0.0.1:80"}, {"name": "10.0.0.1:80"}]')
    assert _attach(tmp_path) == 2
    assert "two instances have one name" in capsys.readouterr().err


def test_attach__bad_service(tmp_path: Path, capsys: Capture) -> None:
    """A usage error that says what an address is."""
    assert main(["route", "attach", "--service", "llm.local"]) == 2
    assert "A.B.C.D:PORT or [IPv6]:PORT" in capsys.readouterr().err


def test_status__with_nothing_attached(capsys: Capture) -> None:
    """Whether the kernel could, and why not."""
    assert main(["route", "status", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["mode"], figures["kernel"]) == ("not attached", False)
    assert main(["route", "status"]) == 0
    assert "not attached; the kernel cannot route" in capsys.readouterr().out


def test_detach__with_nothing_attached(capsys: Capture) -> None:
    """It says how to attach."""
    assert main(["route", "detach"]) == 5
    assert "`dpfedge route attach`" in capsys.readouterr().err
