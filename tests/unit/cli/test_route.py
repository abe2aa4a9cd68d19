# SPDX-License-Identifier: Apache-2.0
"""`dpfedge route`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpfedge.cli import main
from dpfedge.routing import Instance, Publisher, RouteLog, Router, Sample, devices
from dpfedge.routing.publication import server_path

Capture = pytest.CaptureFixture[str]
SESSION = ["--model", "llama-3-8b", "--user", "alice", "--session-ms", "1735689600000"]


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    """A file of the eight instances of the golden tables."""
    path = tmp_path / "instances.json"
    path.write_text(json.dumps([{"name": f"10.0.0.{i + 1}:8000", "weight": 1} for i in range(8)]))
    return path


def _json(arguments: list[str], capsys: Capture) -> dict[str, Any]:
    assert main(["route", *arguments, "--json"]) == 0
    figures: dict[str, Any] = json.loads(capsys.readouterr().out)
    return figures


def test_key__hash_and_table_slot(capsys: Capture) -> None:
    """As text and as JSON."""
    assert main(["route", "key", *SESSION]) == 0
    assert capsys.readouterr().out == "hash        f20ef91535a05037\ntable slot  61966 of 65536\n"
    figures = _json(["key", *SESSION], capsys)
    assert (figures["hash"], figures["slot"], figures["mark"]) == ("f20ef91535a05037", 61966, "f20ef915")
    assert _json(["key", *SESSION, "--bits", "20"], capsys)["slot"] == 0xF20EF


def test_key__bytes_as_they_were_typed(capsys: Capture) -> None:
    """Also what is no UTF-8, which Python hands on in half surrogates."""
    figures = _json(["key", "--model", "\udcff\udcfe", "--user", "", "--session-ms", "0"], capsys)
    assert figures["key"] == "0200fffe0000" + "00" * 8


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model", "m" * 121, "--user", "u", "--session-ms", "0"], "model: the id is too long; found 121 bytes"),
        (["--model", "m", "--user", "ü" * 61, "--session-ms", "0"], "user: the id is too long; found 122 bytes"),
        (["--model", "m", "--user", "u", "--session-ms", "-1"], "--session-ms: a whole number is wanted; found '-1'"),
        (["--model", "m", "--user", "u", "--session-ms", "1e3"], "found '1e3'; allowed 0..18446744073709551615"),
        (["--model", "m", "--user", "u", "--session-ms", str(1 << 64)], "--session-ms"),
        (["--model", "m", "--user", "u", "--session-ms", "0", "--bits", "40"], "--bits: a whole number is wanted"),
    ],
)
def test_key__refuses_bad_ids(arguments: list[str], text: str, capsys: Capture) -> None:
    """By name, exit code 2."""
    assert main(["route", "key", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_table__digest_and_owners(eight: Path, capsys: Capture) -> None:
    """The golden table of eight."""
    figures = _json(["table", "--instances", str(eight)], capsys)
    assert figures["digest"] == "45fcdbc70424e18f"
    assert [figures["owners"][slot] for slot in (0, 1, 12345, 32768, 65535)] == [4, 2, 5, 7, 2]
    assert sum(row["slots"] for row in figures["instances"]) == len(figures["owners"]) == 65536
    assert main(["route", "table", "--instances", str(eight), "--bits", "8"]) == 0
    out = capsys.readouterr().out
    assert "table slots 256\n" in out
    assert len(out.splitlines()) == 10


def test_table__nobody(tmp_path: Path, capsys: Capture) -> None:
    """Without weight every table slot is nobody's."""
    file = tmp_path / "none.json"
    for rows in ([{"name": "a", "weight": 0}, {"name": "b", "weight": 0}], []):
        file.write_text(json.dumps(rows))
        figures = _json(["table", "--instances", str(file)], capsys)
        assert (figures["digest"], set(figures["owners"])) == ("ada08b142a6d2550", {65535})
    assert main(["route", "table", "--instances", str(file)]) == 0
    assert "65536 of them nobody's" in capsys.readouterr().out


def test_bits__by_the_number_of_instances(tmp_path: Path, capsys: Capture) -> None:
    """`explain` of a file as `attach` would publish it, `table` when asked; the number that is typed goes before."""
    file = tmp_path / "nine.json"
    file.write_text(json.dumps([{"name": f"10.0.0.{i + 1}:8000"} for i in range(9)]))
    instances = ["--instances", str(file)]
    assert _json(["table", *instances], capsys)["bits"] == 16
    assert _json(["table", *instances, "--bits", "auto"], capsys)["bits"] == 17
    assert _json(["explain", *SESSION, *instances], capsys)["slot"] == 0xF20EF91535A05037 >> 47
    assert _json(["explain", *SESSION, *instances, "--bits", "16"], capsys)["slot"] == 0xF20E
    assert main(["route", "explain", *SESSION, "--bits", "16"]) == 2
    assert "--bits: a published table has its bits; allowed together with --instances" in capsys.readouterr().err


def test_table__two_of_one_name(tmp_path: Path, capsys: Capture) -> None:
    """Refused with both places."""
    file = tmp_path / "twins.json"
    file.write_text('[{"name": "a", "weight": 1}, {"name": "a", "weight": 1}]')
    assert main(["route", "table", "--instances", str(file)]) == 2
    assert f"{file}[1]: two instances have one name; found 'a', as {file}[0]" in capsys.readouterr().err


def test_explain__of_a_file(eight: Path, capsys: Capture) -> None:
    """Instance, health, why, and who would be next."""
    figures = _json(["explain", *SESSION, "--instances", str(eight)], capsys)
    assert (figures["instance"], figures["healthy"], figures["slot"]) == ("10.0.0.4:8000", True, 61966)
    rows = json.loads(eight.read_text())
    rows[3]["healthy"] = False
    eight.write_text(json.dumps(rows))
    assert _json(["explain", *SESSION, "--instances", str(eight)], capsys)["instance"] == figures["successors"][0]
    assert main(["route", "explain", *SESSION, "--instances", str(eight)]) == 0
    out = capsys.readouterr().out
    assert "why         of 7 instances with weight it has the lowest cost for its weight at table slot 61966" in out


def test_explain__of_the_published_table(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's by default, with its generation and health."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / "dpfedge" / "route" / "table"
    assert main(["route", "explain", *SESSION, "--table", str(path)]) == 5
    assert "no routing table is published there" in capsys.readouterr().err
    with Publisher(path, bits=8, key_seed=5) as publisher:
        router = Router(publisher)
        router.assign([Instance("a", 2), Instance("b")])
        decision = router.route("llama-3-8b", "alice", 1735689600000)
        figures = _json(["explain", *SESSION], capsys)
        assert (figures["instance"], figures["generation"]) == (decision.instance, 1)
        assert (figures["slot"], figures["source"]) == (decision.slot, str(path))
        assert figures["health_map"]["a"] == {"health": 1.0, "healthy": True, "weight": 2, "effective": 2}
        router.assign([Instance("a", 0)])
    assert main(["route", "explain", *SESSION, "--table", str(path)]) == 1
    assert "health map {a: health 1.0, healthy True, weight 0, effective 0}" in capsys.readouterr().err


def test_explain__of_this_machine(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody publishes a table it looks at the devices, and says that it did."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    looks = {"cpu:0": lambda: Sample(0.5, 0.25, 95.0), "cuda:0": lambda: Sample(0.1, 0.9, fatal_errors=1)}
    monkeypatch.setattr(devices, "device_sources", lambda registry: looks)
    figures = _json(["explain", *SESSION], capsys)
    assert (figures["instance"], figures["health"], figures["healthy"]) == ("cpu:0", 0.25, True)
    assert figures["source"] == "this machine's devices: no router publishes a table"
    del looks["cpu:0"]
    assert main(["route", "explain", *SESSION]) == 1
    assert "health map {cuda:0: health 0.0, healthy False, weight 1}" in capsys.readouterr().err


def test_explain__nobody_at_all(tmp_path: Path, capsys: Capture) -> None:
    """An empty list is an error that says so, not a hang."""
    (tmp_path / "none.json").write_text("[]")
    assert main(["route", "explain", *SESSION, "--instances", str(tmp_path / "none.json")]) == 1
    assert "no instances at all" in capsys.readouterr().err


def test_replay__proved_and_not(tmp_path: Path, capsys: Capture) -> None:
    """Exit code 1 and the line when a decision is not as the rules say."""
    path = tmp_path / "route.log"
    with RouteLog(path, ids=True) as log, Publisher(None, bits=8) as publisher:
        router = Router(publisher, log=log)
        router.assign([Instance("a"), Instance("b")])
        instance = router.route("m", "u", 1).instance
    assert main(["route", "replay", str(path)]) == 0
    assert capsys.readouterr().out == "proved: 2 changes, 1 decisions; 3 tables built anew\n"
    other = "b" if instance == "a" else "a"
    path.write_text(path.read_text().replace(f'"instance": "{instance}"', f'"instance": "{other}"'))
    assert main(["route", "replay", str(path)]) == 1
    assert f"route.log:4: instance: logged {other}, proved {instance}" in capsys.readouterr().out
    assert main(["route", "replay", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"][0]["line"] == 4


def test_explain__by_the_table_of_the_server_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Where the host has no router; of two servers one has to be named."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Publisher(server_path(8080)) as first, Publisher(server_path(8081)) as second:
        for publisher, name in ((first, "cuda:0"), (second, "cuda:1")):
            Router(publisher).assign([Instance(name)])
        second.close()
        assert _json(["explain", *SESSION], capsys)["instance"] == "cuda:0"
        with Publisher(server_path(8081)):
            assert main(["route", "explain", *SESSION]) == 2
            assert "several servers run, each with a table; allowed " in capsys.readouterr().err
            told = _json(["explain", *SESSION, "--table", str(server_path(8081))], capsys)
            assert told["instance"] == "cuda:1"
