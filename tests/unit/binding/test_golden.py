# SPDX-License-Identifier: Apache-2.0
"""The golden run: what is compared, and that a wrong answer is found and named."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Array, Budget, Device
from dpfedge.binding import Found
from dpfedge.binding.bind import bind
from dpfedge.binding.bound import Bound
from dpfedge.binding.golden import golden_inputs, require_golden, run_golden
from dpfedge.errors import BackendError
from dpfedge.hardware.board import load_board
from dpfedge.package import PackageWriter, open_package
from dpfedge.tensors import TensorSpec

IN, OUT, CACHE = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32) * 2, (1, 1, 8, 1)
PORTS: Mapping[str, list[dict[str, Any]]] = {
    "inputs": [
        {"name": "x", "dtype": "f32", "dims": ["n"]},
        {"name": "past.0", "dtype": "f32", "dims": list(CACHE)},
    ],
    "outputs": [
        {"name": "y", "dtype": "f32", "dims": ["n"]},
        {"name": "best", "dtype": "i64", "dims": [1]},
        {"name": "present.0", "dtype": "f32", "dims": list(CACHE)},
    ],
}
RECORD: dict[str, Any] = {
    "model": "m", "graph": "g", "section": "golden", "in_place": [["present.", "past."]],
    "inputs": {"x": {"dtype": "f32", "dims": [4], "offset": 0, "size": 16}},
    "outputs": {
        "y": {
            "dtype": "f32", "dims": [2], "whole": [4], "at": [2], "offset": 64, "size": 8,
            "max_abs": 0.1, "rel_l2": 0.1,
        },
        "best": {"dtype": "i64", "dims": [1], "offset": 128, "size": 8},
        "present.0": {
            "dtype": "f32", "dims": [1, 1, 4, 1], "whole": list(CACHE), "offset": 0, "size": 16, "rel_l2": 0.1,
        },
    },
}  # fmt: skip


class Doubler:
    """y = 2x, best = argmax, and x is written at the start of the cache; `spoil` changes the answers."""

    def __init__(self, spoil: Callable[[dict[str, Array]], object]) -> None:
        self.name, self.spoil = "double", spoil
        self.inputs = tuple(TensorSpec.from_map(port) for port in PORTS["inputs"])
        self.outputs = tuple(TensorSpec.from_map(port) for port in PORTS["outputs"])
        self.feeds: dict[str, Array] = {}
        self.places: dict[str, Array] = {}
        self.answers: dict[str, Array] = {}
        self.open = True

    def bind(self) -> Doubler:
        """This call."""
        return self

    def set_input(self, name: str, array: Array) -> None:
        """Keep the array."""
        self.feeds[name] = array

    def set_output(self, name: str, array: Array) -> None:
        """Keep the array to write into."""
        self.places[name] = array

    def run(self) -> None:
        """Answer."""
        x = self.feeds["x"]
        self.places["present.0"][0, 0, : x.size, 0] = x
        self.answers = {"y": x * 2, "best": np.array([int(x.argmax())]), "present.0": self.places["present.0"]}
        self.spoil(self.answers)

    def output(self, name: str) -> Array:
        """The last answer."""
        return self.answers[name]

    def close(self) -> None:
        """Remember it."""
        self.open = False


class Loader:
    """A backend that loads one Doubler."""

    name, version, abi = "cpu", "0.1.0", 1

    def __init__(self, spoil: Callable[[dict[str, Array]], object]) -> None:
        self.executable, self.budgets = Doubler(spoil), list[Budget]()

    def load(self, graph: object, device: Device, budget: Budget) -> Doubler:
        """The one graph."""
        self.budgets.append(budget)
        return self.executable


@pytest.fixture
def bound(tmp_path: Path, parts: Any) -> Callable[..., Bound]:
    """A package with a golden record, bound to a backend whose answers `spoil` changes."""

    def make(spoil: Callable[[dict[str, Array]], object] = lambda answers: None, **changes: Any) -> Bound:
        path = tmp_path / "golden.dpfbin"
        target = parts.target("cpu", "cpu", ["class", "cpu.x86_64"])
        target["models"] = {"m": {"graphs": {"g": {"section": "graph", **PORTS}}}}
        with PackageWriter(path, name="golden", version="1") as writer:
            writer.add("graph", "graph", b"bytes")
            data = IN.tobytes() + bytes(48) + OUT[2:].tobytes() + bytes(56) + np.array([3]).tobytes()
            writer.add("golden", "golden", data)
            model = {"family": "onnx", "licence": "MIT", "source": "test"}
            golden = [{"note": "this is no call"}, {**copy.deepcopy(RECORD), **changes}]
            writer.finish({"models": {"m": model}, "targets": [target], "golden": golden})
        backend: Any = Loader(spoil)
        found = Found((parts.CPU,), {"cpu": backend}, {})
        return bind(open_package(path), load_board("host"), found)

    return make


def test_run_golden__good(bound: Callable[..., Bound]) -> None:
    """Every recorded output is compared, in its box; the graph is closed afterwards."""
    made = bound()
    results = run_golden(made, Budget(threads=2))
    backend: Any = made.backends["cpu"]

    assert [(result.port, result.passed, result.max_abs) for result in results] == [
        ("y", True, 0.0), ("best", True, 0.0), ("present.0", True, 0.0),
    ]  # fmt: skip
    assert not backend.executable.open
    assert backend.budgets == [Budget(threads=2)]
    assert require_golden(made) == results


SPOILED: list[tuple[str, Callable[[dict[str, Array]], object], str]] = [
    ("value", lambda a: a.update(y=a["y"] + 1), r"m\.g: y: .*; found max_abs 1, rel_l2 0\.196; allowed max"),
    ("nan", lambda a: a["y"].__setitem__(3, np.nan), r"m\.g: y: .*; found max_abs inf, rel_l2 inf"),
    ("shape", lambda a: a.update(y=a["y"][:3]), r"m\.g: y: .*; found max_abs inf"),
    ("dtype", lambda a: a.update(y=a["y"].astype(np.float64)), r"m\.g: y: .*; found max_abs inf"),
    ("integer", lambda a: a.update(best=np.array([1])), r"m\.g: best: .*; found max_abs 2, rel_l2 inf; allowed max"),
    ("cache", lambda a: a["present.0"].fill(7), r"m\.g: present\.0: .*; found max_abs 7, rel_l2"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), [case[1:] for case in SPOILED], ids=[case[0] for case in SPOILED])
def test_require_golden__names_what_is_wrong(
    bound: Callable[..., Bound], spoil: Callable[[dict[str, Array]], object], message: str
) -> None:
    """One wrong output is enough; the message has target, graph, port and both errors."""
    with pytest.raises(BackendError, match=message) as caught:
        require_golden(bound(spoil))
    assert "golden run failed on 1 of 3 outputs" in str(caught.value)


def test_run_golden__outside_the_box_nothing_counts(bound: Callable[..., Bound]) -> None:
    """Values that were not recorded are not compared."""
    assert all(result.passed for result in run_golden(bound(lambda a: a["y"].__setitem__(0, 99.0))))


def test_golden_inputs__are_complete(bound: Callable[..., Bound]) -> None:
    """What a seal may run with: recorded values, and zeros for a cache that was empty."""
    (feeds,) = golden_inputs(bound(), "m", "g")
    assert list(feeds) == ["x", "past.0"]
    assert np.array_equal(feeds["x"], IN)
    assert feeds["past.0"].shape == CACHE
    assert not feeds["past.0"].any()
    assert golden_inputs(bound(), "m", "g")[0]["x"].base is not None  # in the mapped package


def test_run_golden__to_map_is_json(bound: Callable[..., Bound]) -> None:
    """Infinite errors become null."""
    row = run_golden(bound(lambda a: a.update(best=np.array([1]))))[1].to_map()

    assert (row["port"], row["rel_l2"], row["max_abs"], row["passed"]) == ("best", None, 2.0, False)


def test_run_golden__a_backend_that_breaks_its_contract(bound: Callable[..., Bound]) -> None:
    """What it raises of its own is a BackendError that names it, where it would have been a traceback."""

    def spoil(answers: dict[str, Array]) -> None:
        raise OSError("bus error")

    with pytest.raises(BackendError, match=r"^backend cpu: m\.g: it broke its contract; found OSError: bus error \("):
        run_golden(bound(spoil))


def test_run_golden__in_place_without_memory(bound: Callable[..., Bound]) -> None:
    """A record that names no input to write into is refused by name."""
    with pytest.raises(BackendError, match=r"no empty input to write into; found gone\.0; allowed past\.0"):
        run_golden(bound(in_place=[["present.", "gone."]]))


def test_run_golden__without_records(build: Any, parts: Any) -> None:
    """A package that has none gives no results."""
    package = build(parts.target("cpu", "cpu", ["class", "cpu.x86_64"]))

    assert run_golden(bind(package, load_board("host"), parts.found(parts.CPU))) == ()
