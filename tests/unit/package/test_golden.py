# SPDX-License-Identifier: Apache-2.0
"""Golden records: what is read, and each way one can lead outside its section, its graph or the limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import FormatError
from dpfedge.package import open_package
from dpfedge.package.fields import Node
from dpfedge.package.golden import read_golden

ChangeManifest = Callable[[Callable[[dict[str, Any]], object]], Path]


def values(**changes: Any) -> dict[str, Any]:
    """Six floats at the section's start."""
    return {"dtype": "f32", "dims": [1, 6], "offset": 0, "size": 24, **changes}


def record(**changes: Any) -> dict[str, Any]:
    """A record of the test package's only graph."""
    whole = {"model": "llm", "graph": "step", "section": "golden", "inputs": {"x": values()}, "outputs": {}}
    return {**whole, **changes}


@pytest.fixture
def with_golden(change_manifest: ChangeManifest) -> Callable[[dict[str, Any]], Path]:
    """The test package whose weights section became a golden one, with this record."""

    def make(golden: dict[str, Any]) -> Path:
        def change(manifest: dict[str, Any]) -> None:
            manifest["sections"][0].update(name="golden", kind="golden", critical=False)
            port = {"name": "y", "dtype": "f32", "dims": [1, "n", 8]}
            manifest["targets"][0]["models"]["llm"]["graphs"]["step"].update(outputs=[port], weights=[])
            manifest["golden"] = [golden]

        return change_manifest(change)

    return make


def test_golden__read() -> None:
    """Fields that are absent get their meaning; in-place outputs find their inputs."""
    out = values(dims=[2, 3], at=[1, 0], whole=[4, 3], max_abs=0.5)
    found = read_golden(Node(record(outputs={"present.1.k": out}, in_place=[["present.", "past."]]), "golden"))

    assert found is not None
    assert (found.target, found.inputs["x"].at, found.inputs["x"].whole) == (None, (0, 0), (1, 6))
    assert (found.outputs["present.1.k"].whole, found.outputs["present.1.k"].rel_l2) == ((4, 3), None)
    assert (found.in_place_of("present.1.k"), found.in_place_of("logits")) == ("past.1.k", None)


def test_golden__note_is_ignored() -> None:
    """A record without a graph, as the first golden files have it, is no call."""
    assert read_golden(Node({"model": "tiny-llm", "tolerance": 0.001}, "golden")) is None


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("size", record(inputs={"x": values(size=23)}), r"x\.size: size differs from dtype and dims; found 23; allowed 24"),
    ("aligned", record(inputs={"x": values(offset=2)}), r"x\.offset: values are not aligned; found 2; allowed 4"),
    ("dtype", record(inputs={"x": values(dtype="bf16", size=12)}), r"x\.dtype: unknown dtype; found 'bf16'"),
    ("dims", record(inputs={"x": values(dims=["n", 6])}), r"x\.dims\[0\]: wrong type or missing; found text"),
    ("huge", record(inputs={"x": values(dims=[1 << 31])}), r"x\.dims\[0\]: number out of range"),
    ("box", record(outputs={"y": values(dims=[1, 1, 6], whole=[1, 1, 8], at=[0, 0, 3])}), r"y\.at: values lie outside"),
    ("rank", record(outputs={"y": values(dims=[1, 6], whole=[1, 1, 8])}), r"y\.at: values lie outside the tensor"),
    ("whole", record(outputs={"y": values(whole=[1 << 20, 1 << 20])}), r"y\.whole: tensor is too large"),
    ("tolerance", record(outputs={"y": values(max_abs=-1.0)}), r"y\.max_abs: number out of range; found -1\.0"),
    ("tolerance_text", record(outputs={"y": values(rel_l2="much")}), r"y\.rel_l2: wrong type or missing; found text"),
    ("pair", record(in_place=[["present."]]), r"in_place\[0\]: wrong length; found 1"),
    ("behind", record(inputs={"x": values(offset=65536)}), r"inputs\.x: values end behind their section; found 65560"),
    ("section", record(section="graph"), r"golden\[0\]\.section: reference leads nowhere; found 'graph', a graph"),
    ("no_section", record(section=5), r"golden\[0\]\.section: wrong type or missing"),
    ("model", record(model="vad"), r"golden\[0\]\.graph: no such graph; found 'any target: vad\.step'"),
    ("graph", record(graph="leap"), r"golden\[0\]\.graph: no such graph"),
    ("target", record(target="gpu"), r"golden\[0\]\.graph: no such graph; found 'gpu: llm\.step'"),
    ("port", record(inputs={"x": values(), "z": values()}), r"golden\[0\]\.inputs: no such port; found 'z'; allowed x"),
    ("type", record(inputs={"x": values(dtype="i32")}), r"inputs\.x: does not fit its port; found i32\[1, 6\]"),
    ("static", record(inputs={"x": values(dims=[2, 3])}), r"inputs\.x: does not fit its port; found f32\[2, 3\]"),
    ("missing", record(inputs={}), r"golden\[0\]\.inputs: input without values has no sizes; found 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("golden", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_golden__refused(with_golden: Callable[[dict[str, Any]], Path], golden: dict[str, Any], message: str) -> None:
    """The fast check refuses a record that leads anywhere but into its section and its graph."""
    path = with_golden(golden)

    with pytest.raises(FormatError, match=message):
        open_package(path, check="fast")
