# SPDX-License-Identifier: Apache-2.0
"""The bill of materials: valid CycloneDX 1.6, the same bytes every time, with each file's digest."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT7

from dpfedge.compiler.sbom import bill, material, spdx
from dpfedge.errors import ModelError

COMPILER = {"name": "dpfedge", "version": "0.1.0", "onnx": "1.23.2", "onnxruntime": "1.32.0"}


def schema(name: str) -> Any:
    """A schema as the CycloneDX project ships it."""
    return json.loads(files("cyclonedx.schema._res").joinpath(f"{name}.SNAPSHOT.schema.json").read_text())


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bill of one model of two files."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    for name in ("b.onnx", "a.json"):
        (tmp_path / name).write_text(name)
    paths = [tmp_path / "b.onnx", tmp_path / "a.json"]
    item = material("voice", "piper", "folder:voice", "MIT AND Apache-2.0", "https://example.org/voice", paths)
    return bill("car", "1.2", [item], COMPILER)


def test_bill__is_valid_cyclonedx(made: bytes) -> None:
    """The schema of version 1.6, with the SPDX and signature schemas it refers to, accepts it."""
    main = schema("bom-1.6")
    registry: Registry[Any] = Registry()
    for name in ("spdx", "jsf-0.82"):
        other = schema(name)
        resource = DRAFT7.create_resource(other)
        registry = registry.with_resources([(other["$id"], resource), (f"{name}.SNAPSHOT.schema.json", resource)])
    jsonschema.Draft7Validator(main, registry=registry).validate(json.loads(made))


def test_bill__content(made: bytes) -> None:
    """Models with files and digests, libraries with their purl, and no time."""
    document = json.loads(made)
    model, onnx, _ = document["components"]

    assert model["licenses"] == [{"expression": "MIT AND Apache-2.0"}]
    assert [(part["name"], part["hashes"][0]["content"]) for part in model["components"]] == [
        (name, hashlib.sha256(name.encode()).hexdigest()) for name in ("a.json", "b.onnx")
    ]
    assert onnx["purl"] == "pkg:pypi/onnx@1.23.2"
    assert "timestamp" not in document["metadata"]
    assert document["dependencies"][0]["dependsOn"][0] == "model/voice"


def test_bill__repeats(made: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes depend on the content; SOURCE_DATE_EPOCH is the only time there is."""
    empty = bill("car", "1.2", [], COMPILER)

    assert bill("car", "1.2", [], dict(reversed(COMPILER.items()))) == empty
    assert json.loads(empty)["serialNumber"] != json.loads(made)["serialNumber"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert json.loads(bill("car", "1.2", [], COMPILER))["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"


def test_spdx__known_expressions_only() -> None:
    """Spelling is made canonical; anything SPDX does not list is refused with its place."""
    assert spdx("apache-2.0 or mit", "here") == "Apache-2.0 OR MIT"
    assert spdx("LicenseRef-Vendor-EULA", "here") == "LicenseRef-Vendor-EULA"
    with pytest.raises(
        ModelError, match=r"recipe\.yaml:4: not an SPDX licence expression; found 'free'; allowed https:"
    ):
        spdx("free", "recipe.yaml:4")
