# SPDX-License-Identifier: Apache-2.0
"""FORMAT.md, the golden files and the code say the same."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from dpfedge import limits
from dpfedge.package import open_package
from dpfedge.package.expression import OPERATORS
from dpfedge.package.manifest import KINDS
from dpfedge.tensors import DTYPES

ROOT = Path(__file__).parents[3]
FORMAT = (ROOT / "dpfedge/package/FORMAT.md").read_text()
GOLDEN = ROOT / "tests/golden/v1"


@pytest.mark.parametrize(
    "name",
    ["smallest.dpfbin", "tiny.dpfbin", "signed.dpfbin", "answers.dpfbin", "baked.dpfbin", "baked.dpfbin.dpfseal"],
)
def test_golden__opens_for_ever(name: str) -> None:
    """Files of version 1 pass the full check."""
    with open_package(GOLDEN / name) as package:
        assert package.manifest.format == (1, 0)


def test_golden__content() -> None:
    """A golden file still says what it said when it was made."""
    with open_package(GOLDEN / "tiny.dpfbin") as package:
        target = package.manifest.target("cpu.x86-64-v3")
        graph = target.models["tiny-llm"].graphs["step"]
        assert target.whitelist == (
            "and", ("class", "cpu.x86_64"), ("arch", "x86-64-v3"), ("not", ("board", "orin")),
        )  # fmt: skip
        assert graph.inputs[0].dims == (1, "tokens")
        assert package.section(graph.weights[0])[:7] == bytes(range(7))


def test_golden__answers() -> None:
    """Golden records still say where their values lie and how far an answer may be off."""
    with open_package(GOLDEN / "answers.dpfbin") as package:
        first, second = package.manifest.golden
        y = first.outputs["y"]
        assert (y.at, y.whole, y.max_abs, y.rel_l2) == ((2, 0), (3, 2), 0.5, 0.001)
        assert (first.target, second.target, first.in_place_of("present")) == (None, "cpu", "past")
        assert bytes(package.section("golden/net")[128:136]) == bytes([2, 0, 0, 0, 0, 0, 0, 0])


def test_golden__baked_and_sealed() -> None:
    """A prefix and a sidecar still say what they are bound to and where their bytes lie."""
    with open_package(GOLDEN / "baked.dpfbin") as package, open_package(GOLDEN / "baked.dpfbin.dpfseal") as sidecar:
        prefix, seal = package.manifest.targets[0].models["lm"].prefix, sidecar.manifest.seal
        assert prefix is not None
        assert seal is not None
        assert (prefix.tokens, prefix.key["device/arch"]) == ((1, 9, 4), "x86-64-v3")
        value = prefix.memory["past_key_values.0.value"]
        assert (value.offset, value.size, value.dtype, value.dims) == (64, 48, "f32", (1, 2, 3, 2))
        assert seal.package == package.manifest_sha256
        assert (seal.target, seal.backend, seal.driver, seal.libraries) == (
            "cpu", "cpu", "none 1.0", {"onnxruntime": "1.32.0"},
        )  # fmt: skip
        assert (seal.built[0].name, seal.built[0].section) == ("packed", "sealed/lm")
        assert seal.prefixes["lm"] == prefix


def test_golden__writer_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Today's writer makes the golden files byte for byte."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    written = runpy.run_path(str(ROOT / "tests/golden/make_v1.py"))["write"](tmp_path)

    for path in written:
        assert path.read_bytes() == (GOLDEN / path.name).read_bytes(), path.name


def test_format__example_is_the_golden_file() -> None:
    """The hex dump in FORMAT.md is the smallest golden file, whole."""
    (block,) = re.findall(r"```hex\n(.*?)```", FORMAT, re.DOTALL)
    data = bytes.fromhex("".join(line[10:57] for line in block.splitlines()))

    assert data == (GOLDEN / "smallest.dpfbin").read_bytes()


def test_format__limits() -> None:
    """Each limit in the table has the value of `limits`."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|$", FORMAT, re.MULTILINE)

    assert len(rows) >= 18
    for name, text in rows:
        number = text.strip().replace(" ", "").replace("\u00a0", "").replace("2⁵⁰", str(1 << 50))
        number = number.replace("GiB", "*1073741824").replace("MiB", "*1048576")
        factors = [int(factor) for factor in number.split("*")]
        assert factors[0] * (factors[1] if len(factors) > 1 else 1) == getattr(limits, name), name


def test_format__closed_lists() -> None:
    """Section kinds, whitelist operators and dtypes are all described, in their order."""
    assert ", ".join(f"`{kind}`" for kind in KINDS) in FORMAT
    assert tuple(KINDS) == ("weights", "graph", "asset", "prefix", "sealed", "golden", "licence")
    assert " ".join(DTYPES) in FORMAT
    assert all(f'["{operator}", ' in FORMAT for operator in OPERATORS)
