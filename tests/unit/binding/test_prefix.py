# SPDX-License-Identifier: Apache-2.0
"""Which baked prefix fits: keys, candidates in order, and the reasons against the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.backend.api import Identity
from dpfedge.binding.bind import bind
from dpfedge.binding.prefix import Candidate, PrefixFound, judge_prefixes
from dpfedge.hardware.board import Board
from dpfedge.package import Package
from dpfedge.package.prefix import BakedPrefix, Stored

KEY = {"weights": "w", "stage/chunk_tokens": "128"}


class Sections:
    """One section of 200 bytes."""

    def section(self, name: str) -> memoryview:
        assert name == "prefix"
        return memoryview(bytes(range(200)))

    def find(self, name: str) -> Any:
        raise AssertionError("digests are not needed for a section that is mapped")


def candidate(source: str, **key: str) -> Candidate:
    """A prefix of one port at byte 64."""
    record = BakedPrefix("prefix", {**KEY, **key}, (1,), {"past.0.key": Stored(64, 4, "f32", (1, 1, 1, 1))})
    return Candidate(record, Sections(), source)


def test_judge_prefixes__the_first_that_fits() -> None:
    """The seal's is looked at first; its refusal stays beside the package's that fits."""
    found = judge_prefixes("llm", [candidate("seal", weights="other"), candidate("package")], KEY)

    assert found.source == "package"
    assert found.memory is not None
    assert bytes(found.memory["past.0.key"]) == bytes(range(64, 68))
    assert [str(stale) for stale in found.refused] == [
        "baked prefix of llm: refused: weights: wanted other; found w; run `dpfedge seal`"
    ]


def test_judge_prefixes__none_fits() -> None:
    """Nothing is mapped, and every difference is named."""
    found = judge_prefixes("llm", [candidate("package", weights="other", extra="1")], KEY)

    assert (found.record, found.memory, found.source) == (None, None, "none")
    assert [stale.field for stale in found.refused] == ["extra", "weights"]
    assert judge_prefixes("llm", [], KEY) == PrefixFound()


def test_key__covers_what_numbers_depend_on(build: Callable[..., Package], host: Board, parts: Any) -> None:
    """Weights, graphs, assets, backend; and device and libraries where the backend names them."""
    recorder = parts.Recorder("cpu")
    bound = bind(build(parts.target("t", "cpu", ["board", "host"])), host, parts.found(parts.CPU, cpu=recorder))
    model = bound.model("llm")

    assert sorted(model.key()) == ["asset/tokenizer", "backend", "graphs", "weights"]
    assert model.prefix({}) == PrefixFound()
    recorder.identity = lambda device: Identity({"arch": device.arch}, {"onnxruntime": "1"}, "none")
    recorder.seal = lambda *parts: None
    assert sorted(set(model.key()) - {"asset/tokenizer", "backend", "graphs", "weights"}) == [
        "device/arch", "driver", "library/onnxruntime",
    ]  # fmt: skip


@pytest.fixture
def baked_target(parts: Any) -> Callable[..., dict[str, Any]]:
    """A target whose llm has a prefix of nothing but a key."""

    def make(key: dict[str, str]) -> dict[str, Any]:
        target: dict[str, Any] = parts.target("t", "cpu", ["board", "host"])
        place = {"offset": 0, "size": 1, "dtype": "u8", "dims": [1]}
        target["models"]["llm"]["prefix"] = {
            "section": "prefix", "key": key, "tokens": [1], "memory": {"past": place},
        }  # fmt: skip
        return target

    return make


def test_prefix__without_settings_asks_about_the_machine_only(
    build: Callable[..., Package], host: Board, parts: Any, baked_target: Any
) -> None:
    """`bind --explain` knows no stage: what the stage adds to the key is taken as it was baked."""
    found = parts.found(parts.CPU)
    key = bind(build(parts.target("t", "cpu", ["board", "host"])), host, found).model("llm").key()
    package = build(baked_target({**key, "stage/chunk_tokens": "128"}), prefix=b"\7")
    model = bind(package, host, found).model("llm")

    assert model.prefix().source == "package"
    refused = model.prefix({"stage/chunk_tokens": "64"}).refused
    assert [(stale.field, stale.wanted, stale.found) for stale in refused] == [("stage/chunk_tokens", "128", "64")]
