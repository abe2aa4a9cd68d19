# SPDX-License-Identifier: Apache-2.0
"""A binding as text and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.binding.bind import bind
from dpfedge.binding.explain import describe_bound, describe_error, explain_bound
from dpfedge.errors import BindError, BoardError, FormatError
from dpfedge.hardware.board import Board
from dpfedge.package import Package

Build = Callable[..., Package]


def test_explain__short_and_long(build: Build, host: Board, parts: Any) -> None:
    """The short form says what was chosen; the long one adds whitelist, decisions and refusals."""
    package = build(
        parts.target("far", "cpu", ["and", ["board", "orin"], ["arch", "armv8.2-a"]]),
        parts.target("near", "cpu", ["board", "host"]),
        parts.target("third", "cpu", ["board", "host"]),
    )
    bound = bind(package, host, parts.found(parts.CPU))

    short = [
        "package  small 1.2",
        "board    host (this machine's CPU)",
        "target   near, backend cpu 0.1.0",
        "device   cpu:0 x86-64-v3: llm, vad",
    ]
    assert list(explain_bound(bound, explain=False)) == short
    assert list(explain_bound(bound, explain=True)) == [
        *short,
        "accepts  board host",
        "decided  keep: a rule",
        "also     target third would run here",
        "refused  target far: for another board: wanted board orin; found host",
    ]


def test_describe__is_plain_data(build: Build, host: Board, parts: Any) -> None:
    """The map holds the choice and every refusal with its fields."""
    package = build(parts.target("far", "cpu", ["board", "orin"]), parts.target("near", "cpu", ["board", "host"]))

    assert describe_bound(bind(package, host, parts.found(parts.CPU))) == {
        "package": {"name": "small", "version": "1.2"},
        "board": "host",
        "targets": [
            {
                "id": "near",
                "backend": {"name": "cpu", "version": "0.1.0", "abi": 1},
                "models": ["llm", "vad"],
                "whitelist": ("board", "host"),
                "accepts": "board host",
                "memory_bytes": 1,
                "decisions": [{"choice": "keep", "rule": "a rule"}],
            }
        ],
        "models": {
            "llm": {"target": "near", "device": "cpu:0", "degraded": None},
            "vad": {"target": "near", "device": "cpu:0", "degraded": None},
        },
        "hardware": [
            {
                "id": "cpu:0", "kind": "cpu.x86_64", "name": "a CPU", "arch": "x86-64-v3", "features": ["avx2"],
                "memory_bytes": 8 << 30, "drivers": {},
            }
        ],
        "degraded": None,
        "also": [],
        "seal": None,
        "stale": [],
        "refusals": [
            {
                "target": "far",
                "field": "board",
                "wanted": "board orin",
                "found": "host",
                "remedy": "compile the package with --board host",
            }
        ],
    }  # fmt: skip


def test_describe__of_an_error(build: Build, host: Board, parts: Any) -> None:
    """A refusal as data keeps the reasons apart."""
    with pytest.raises(BindError) as caught:
        bind(build(parts.target("t", "cuda", ["board", "host"])), host, parts.found(parts.CPU))

    data = describe_error(caught.value)
    assert data["error"] == "no target runs on board host"
    assert [item["field"] for item in data["refusals"]] == ["backend"]
    assert data["exit_code"] == 3


def test_describe__of_a_wrong_board() -> None:
    """The board is one refusal of no target; what was looked for, found and what to do stand apart."""
    error = BoardError("this machine is not X", wanted=("a", "b"), where="board x", found="y", remedy="go there")

    assert describe_error(error) == {
        "error": "this machine is not X", "where": "board x", "found": "y", "allowed": None, "remedy": "go there",
        "exit_code": 3,
        "refusals": [{"target": None, "field": "board", "wanted": "a and b", "found": "y", "remedy": "go there"}],
    }  # fmt: skip


def test_describe__of_another_error() -> None:
    """A package that cannot be read was never judged."""
    data = describe_error(FormatError("not a package", where="x", found=3))

    assert (data["error"], data["found"], data["exit_code"], data["refusals"]) == ("not a package", "3", 4, [])


def test_explain__baked_prefixes(build: Build, host: Board, parts: Any) -> None:
    """`--explain` says which opening fits this machine, and names what makes another stale."""
    found = parts.found(parts.CPU)
    key = bind(build(parts.target("t", "cpu", ["board", "host"])), host, found).model("llm").key()
    lines = []
    for changes in ({}, {"weights": "others"}):
        target = parts.target("t", "cpu", ["board", "host"])
        target["models"]["llm"]["prefix"] = {
            "section": "prefix", "key": {**key, "stage/chunk_tokens": "128", **changes}, "tokens": [1, 2],
            "memory": {"past": {"offset": 0, "size": 1, "dtype": "u8", "dims": [1]}},
        }  # fmt: skip
        bound = bind(build(target, prefix=b"x"), host, found)
        lines += [line for line in explain_bound(bound, explain=True) if line.startswith(("prefix", "stale"))]

    assert lines == [
        "prefix   llm: 2 tokens of the package",
        f"stale    baked prefix of llm: refused: weights: wanted others; found {key['weights']}; run `dpfedge seal`",
    ]


def test_explain__of_several_targets(build: Build, host: Board, parts: Any) -> None:
    """Each target names its models, and what was decided of models that run elsewhere is not shown."""
    fast = parts.target("gpu", "cuda", ["class", "gpu.nvidia"], decisions=[["llm: device=gpu", "a rule"]])
    fast["models"].pop("vad")
    rows = [["llm: a", "not here"], ["llm.step, vad.step: b", "r"], ["vad: c", "r"], ["board x: d", "r"], ["e", "r"]]
    package = build(fast, parts.target("cpu", "cpu", ["class", "cpu.x86_64"], decisions=rows))

    assert list(explain_bound(bind(package, host, parts.found(parts.CPU, parts.GPU)), explain=True))[2:] == [
        "target   gpu, backend cuda 0.1.0: llm",
        "target   cpu, backend cpu 0.1.0: vad",
        "device   cuda:0 sm_90: llm",
        "device   cpu:0 x86-64-v3: vad",
        "accepts  target gpu: class gpu.nvidia",
        "decided  llm: device=gpu: a rule",
        "accepts  target cpu: class cpu.x86_64",
        "decided  llm.step, vad.step: b: r",
        "decided  vad: c: r",
        "decided  board x: d: r",
        "decided  e: r",
    ]
