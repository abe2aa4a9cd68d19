# SPDX-License-Identifier: Apache-2.0
"""A small package on disk, made anew for each test, and a way to change its manifest as an attacker would."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest

from dpfedge.package import PackageWriter, WeightPool
from dpfedge.package.layout import Header, align, pack_header, unpack_header

MANIFEST: dict[str, Any] = {
    "models": {
        "llm": {"family": "llama", "licence": "MIT", "source": "test", "config": {"n": 1}, "assets": {"tok": "tok"}}
    },
    "targets": [
        {
            "id": "cpu", "backend": "cpu", "backend_abi": 1, "memory_bytes": 1, "whitelist": ["board", "host"],
            "decisions": [["keep", "rule"]],
            "models": {"llm": {"graphs": {"step": {
                "section": "graph", "weights": ["weights"], "outputs": [],
                "inputs": [{"name": "x", "dtype": "f32", "dims": [1, "n"]}],
            }}}},
        }
    ],
    "licences": [{"name": "llm", "spdx": "MIT"}],
}  # fmt: skip


def write_package(path: Path) -> Path:
    """Three sections: weights (two tensors), graph, asset."""
    with PackageWriter(path, name="test", version="1") as writer:
        with WeightPool(writer, "weights") as pool:
            pool.add(np.arange(9, dtype=np.uint8))
            pool.add(np.arange(2000, dtype=np.float32))
        writer.add("graph", "graph", b"graph bytes")
        writer.add("tok", "asset", b"tokens")
        writer.finish(copy.deepcopy(MANIFEST))
    return path


def reseal(path: Path, manifest: bytes, **changes: Any) -> None:
    """Put other manifest bytes into the file with digests that fit, as a forger would; `changes` patch the header."""
    data = path.read_bytes()
    old = unpack_header(data, "test")
    end = align(old.manifest_offset + len(manifest), 64)
    fields = {
        "file_bytes": end, "manifest_offset": old.manifest_offset, "manifest_bytes": len(manifest),
        "manifest_sha256": hashlib.sha256(manifest).digest(), "signature_offset": end, "signature_bytes": 0,
    }  # fmt: skip
    header = pack_header(Header(**{**fields, **changes}))
    body = header + data[128 : old.manifest_offset] + manifest
    path.write_bytes(body + bytes(end - len(body)))


@pytest.fixture
def package_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A valid package."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    return write_package(tmp_path / "test.dpfbin")


@pytest.fixture
def change_manifest(package_file: Path) -> Callable[[Callable[[dict[str, Any]], object]], Path]:
    """Apply a change to the decoded manifest and reseal the file."""

    def apply(change: Callable[[dict[str, Any]], object]) -> Path:
        data = package_file.read_bytes()
        header = unpack_header(data, "test")
        value = cbor2.loads(data[header.manifest_offset : header.manifest_offset + header.manifest_bytes])
        change(value)
        reseal(package_file, cbor2.dumps(value, canonical=True))
        return package_file

    return apply


@pytest.fixture
def reseal_file(package_file: Path) -> Callable[..., Path]:
    """Replace the manifest's bytes and patch header fields, with digests that fit."""

    def apply(manifest: bytes | None = None, **changes: Any) -> Path:
        if manifest is None:
            data = package_file.read_bytes()
            header = unpack_header(data, "test")
            manifest = data[header.manifest_offset : header.manifest_offset + header.manifest_bytes]
        reseal(package_file, manifest, **changes)
        return package_file

    return apply
