# SPDX-License-Identifier: Apache-2.0
"""The record that makes a container a sidecar."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import FormatError
from dpfedge.package.fields import Node
from dpfedge.package.sidecar import SealRecord, check_seal, read_seal, references, sidecar_of


def record() -> dict[str, Any]:
    """A seal of one CPU target."""
    place = {"offset": 0, "size": 4, "dtype": "f32", "dims": [1]}
    prefix = {"section": "prefix.llm", "key": {"a": "b"}, "tokens": [7], "memory": {"past.0.key": place}}
    device = {"arch": "x86-64-v3", "features": "avx2"}
    return {
        "package": bytes(32), "target": "cpu", "backend": "cpu", "driver": "", "device": device,
        "libraries": {"onnxruntime": "1.32.0"}, "prefixes": {"llm": prefix},
        "built": [{"model": "llm", "graph": "llm", "name": "packed", "section": "sealed.llm"}],
    }  # fmt: skip


def test_read_seal__and_back() -> None:
    """Every field goes there and back; without the field it is a package."""
    seal = read_seal(Node(record(), "seal"))

    assert isinstance(seal, SealRecord)
    assert seal.to_map() == record()
    assert read_seal(Node(None, "seal")) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(package=b"short"), r"seal\.package: digest has a wrong length; found 5; allowed 32"),
        (lambda r: r.pop("target"), r"seal\.target: wrong type or missing"),
        (lambda r: r.update(driver=None), r"seal\.driver: wrong type or missing; found nothing; allowed text"),
        (lambda r: r.update(device={"a b": "x"}), r"seal\.device: bad name"),
        (lambda r: r.update(libraries={"a": 1}), r"seal\.libraries\.a: wrong type or missing"),
        (lambda r: r.update(built=[{"model": "m"}]), r"seal\.built\[0\]\.graph: wrong type or missing"),
        (lambda r: r.update(prefixes={"llm": None}), r"seal\.prefixes\.llm: wrong type or missing; found nothing"),
    ],
)
def test_read_seal__refuses(change: Callable[[dict[str, Any]], object], message: str) -> None:
    """The path of the value is named."""
    data = record()
    change(data)

    with pytest.raises(FormatError, match=message):
        read_seal(Node(data, "seal"))


def test_check_seal__prefix_inside_its_section() -> None:
    """The path leads to the port."""
    seal = read_seal(Node(record(), "seal"))
    assert seal is not None

    check_seal(seal, {"prefix.llm": 4}, "seal")
    with pytest.raises(FormatError, match=r"seal\.prefixes\.llm\.memory\.past\.0\.key: values end behind "):
        check_seal(seal, {"prefix.llm": 3}, "seal")
    assert list(references(seal)) == [
        ("seal.built[0].section", "sealed.llm", "sealed"), ("seal.prefixes.llm.section", "prefix.llm", "prefix"),
    ]  # fmt: skip


def test_sidecar_of__beside_the_package() -> None:
    """The package's whole name stays in the sidecar's."""
    assert sidecar_of(Path("/a b/größe.dpfbin")) == Path("/a b/größe.dpfbin.dpfseal")
