# SPDX-License-Identifier: Apache-2.0
"""The package's bill of materials: models with the files they came from, and what made it, as CycloneDX 1.6 JSON.

The same inputs give the same bytes: there is a time stamp only under SOURCE_DATE_EPOCH, and the serial number follows
from the content. It judges no licence beyond whether it is an SPDX expression.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from dpfedge.errors import ModelError
from dpfedge.records import dataclass

__all__ = ["SBOM", "Material", "bill", "material", "spdx"]

SBOM = "sbom.cdx.json"
"""Name of the section."""


@dataclass(frozen=True, slots=True)
class Material:
    """One model as it came in: where from, under which licence, and the SHA-256 of each file."""

    name: str
    family: str
    source: str
    licence: str
    homepage: str
    files: Mapping[str, str]


def spdx(expression: str, where: str) -> str:
    """The expression in its canonical spelling; ModelError when SPDX does not know it."""
    try:
        return str(canonicalize_license_expression(expression))
    except InvalidLicenseExpression as error:
        raise ModelError(
            "not an SPDX licence expression", where=where, found=repr(expression),
            allowed="https://spdx.org/licenses, joined by AND, OR, WITH, or LicenseRef-…", remedy=str(error),
        ) from error  # fmt: skip


def material(name: str, family: str, source: str, licence: str, homepage: str, paths: Sequence[Path]) -> Material:
    """Hash the files of one model."""
    files = {path.name: _sha256(path) for path in sorted(set(paths))}
    return Material(name, family, source, licence, homepage, files)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bill(name: str, version: str, materials: Sequence[Material], compiler: Mapping[str, str]) -> bytes:
    """The bill of package `name`; `compiler`: its `name`, `version` and versions of its libraries."""
    package = f"package/{name}@{version}"
    libraries = {key: text for key, text in sorted(compiler.items()) if key not in ("name", "version")}
    metadata: dict[str, Any] = {
        "tools": {"components": [_library(compiler["name"], compiler["version"], "application")]},
        "component": {"type": "application", "bom-ref": package, "name": name, "version": version},
    }
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        metadata["timestamp"] = datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    components = [_model(item) for item in materials] + [_library(key, text) for key, text in libraries.items()]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata,
        "components": components,
        "dependencies": [{"ref": package, "dependsOn": [component["bom-ref"] for component in components]}],
    }
    serial = uuid.UUID(bytes=hashlib.sha256(_text(document)).digest()[:16], version=4)
    return _text({**document, "serialNumber": serial.urn})


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _model(item: Material) -> dict[str, Any]:
    ref = f"model/{item.name}"
    record: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": ref,
        "name": item.name,
        "licenses": [{"expression": item.licence}],
        "properties": [
            {"name": "dpfedge:family", "value": item.family},
            {"name": "dpfedge:source", "value": item.source},
        ],
        "components": [
            {
                "type": "data",
                "bom-ref": f"{ref}/{name}",
                "name": name,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
            for name, digest in item.files.items()
        ],
    }
    if item.homepage:
        record["externalReferences"] = [{"type": "website", "url": item.homepage}]
    return record


def _library(name: str, version: str, kind: str = "library") -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
