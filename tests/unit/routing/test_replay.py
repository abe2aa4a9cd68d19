# SPDX-License-Identifier: Apache-2.0
"""Proving a log: what a router wrote is proved; whatever is changed in it is found."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpfedge.errors import NoInstance, RouteError
from dpfedge.routing.health import Sample
from dpfedge.routing.instances import Instance
from dpfedge.routing.log import RouteLog
from dpfedge.routing.publication import Publisher
from dpfedge.routing.replay import replay
from dpfedge.routing.router import Router

Lines = list[dict[str, Any]]


def _write(path: Path, *, ids: bool = True, max_bytes: int = 1 << 20) -> None:
    """Some changes of every kind, and decisions in between."""
    with (
        RouteLog(path, ids=ids, max_bytes=max_bytes) as log,
        Publisher(None, bits=8, capacity=8, key_seed=99) as publisher,
    ):
        router = Router(publisher, log=log)
        steps: list[Callable[[], object]] = [
            lambda: router.join("a"), lambda: router.assign([Instance("a", 2), Instance("b"), Instance("ü")]),
            lambda: router.sample("b", Sample(0, 1, fatal_errors=1)), lambda: router.leave("a"),
            lambda: router.join("a", 7), lambda: router.assign([]), lambda: router.join("a"),
        ]  # fmt: skip
        for turn, step in enumerate(steps):
            step()
            for user in range(10):
                with contextlib.suppress(NoInstance):
                    router.route("llm", f"{turn}-{user}".encode() + b"\xff" * (user % 2), user)


def test_replay__proves_what_a_router_wrote(tmp_path: Path) -> None:
    """Every change and decision, with ids and without."""
    for ids in (True, False):
        path = tmp_path / f"log-{ids}"
        _write(path, ids=ids)
        found = replay(path)
        assert (found.differences, found.proved) == ([], True)
        assert (found.changes, found.decisions, found.tables) == (11, 70, 12)
    assert "llm" not in (tmp_path / "log-False").read_text()


def test_replay__proves_each_part_of_a_long_log(tmp_path: Path) -> None:
    """A file that began anew stands alone."""
    _write(tmp_path / "log", max_bytes=4000)
    parts = [tmp_path / "log", tmp_path / "log.1"]
    assert all(replay(part).proved for part in parts)


def test_replay__proves_a_log_of_two_runs(tmp_path: Path) -> None:
    """A restart writes the table anew."""
    _write(tmp_path / "log")
    _write(tmp_path / "log")
    assert replay(tmp_path / "log").proved


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 70_000), st.integers(), st.text(max_size=4), st.just([]), st.just({}),
    st.sampled_from(["a", "b", "00" * 8, "ff" * 9, 8, 1, 1.5, "log", [{"index": 1, "name": "x", "weight": 1}]]),
)  # fmt: skip


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_replay__any_value_in_any_field(tmp_path: Path, data: st.DataObject) -> None:
    """Is proved, told as a difference, or refused as no log; nothing else happens."""
    path = tmp_path / "log"
    if not (tmp_path / "good").exists():
        _write(tmp_path / "good")
    lines = [json.loads(line) for line in (tmp_path / "good").read_text().splitlines()]
    line = data.draw(st.sampled_from(lines))
    inner = data.draw(st.sampled_from([line, *(value for value in line.values() if isinstance(value, dict))]))
    inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(_VALUES)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with contextlib.suppress(RouteError):
        replay(path)


def _first(lines: Lines, kind: str, n: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = [line[kind] for line in lines if kind in line][n]
    return found


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda lines: _first(lines, "decision").update(instance="b"), "instance"),
        (lambda lines: _first(lines, "decision").update(hash="00" * 8), "hash"),
        (lambda lines: _first(lines, "decision").update(slot=256), "table slot"),
        (lambda lines: _first(lines, "decision").update(user="mallory"), "hash"),
        (lambda lines: _first(lines, "decision").update(generation=1000), "generation"),
        (lambda lines: _first(lines, "change", 2).update(digest="00" * 8), "digest"),
        (lambda lines: _first(lines, "change", 2).update(moved=3), "table slots that moved"),
        (lambda lines: _first(lines, "change", 2).update(weight=40000), "digest"),
        (lambda lines: _first(lines, "change", 2).update(generation=7), "generation"),
        (
            lambda lines: _first(lines, "change", 3).update(index=0),
            "the index was another instance's, which had weight",
        ),
        (lambda lines: lines[0].update(digest="00" * 8), "digest"),
        (lambda lines: lines[0].update(key_seed="00"), "hash"),
        (lambda lines: lines.insert(5, {"lost": 3}), "lines that could not be written"),
    ],
)
def test_replay__finds_what_was_changed(tmp_path: Path, spoil: Callable[[Lines], None], what: str) -> None:
    """Any field of any line; the line's number and both values are told."""
    path = tmp_path / "log"
    _write(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    spoil(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = replay(path)
    assert not found.proved
    assert what in [one.what for one in found.differences]
    assert all(0 < one.line <= len(lines) for one in found.differences)


def test_replay__finds_a_line_that_is_missing(tmp_path: Path) -> None:
    """A change that was taken out is seen at the next one."""
    path = tmp_path / "log"
    _write(path)
    lines = path.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if '"leave"' in line)
    path.write_text("".join([*lines[:at], *lines[at + 1 :]]))
    assert not replay(path).proved


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the log is empty"),
        ('{"decision": {}}', "does not begin with a table"),
        ('{"log": "dpfedge-route-log", "version": 1}', "lacks what it must have"),
        (
            '{"log": "dpfedge-route-log", "version": 1, "bits": 99, "key_seed": "0", "generation": 0, "instances": [],'
            ' "digest": ""}',
            "log:1: bits: number out of range",
        ),
        (
            '{"log": "dpfedge-route-log", "version": 1, "bits": 8, "key_seed": "0", "generation": 0,'
            ' "instances": [{"index": 0, "name": "a", "weight": -1}], "digest": ""}',
            "log:1: instance a: the weight is out of range",
        ),
    ],
)
def test_replay__says_what_is_no_log(tmp_path: Path, text: str, what: str) -> None:
    """And where."""
    (tmp_path / "log").write_text(text + "\n" if text else "")
    with pytest.raises(RouteError, match=what):
        replay(tmp_path / "log")
