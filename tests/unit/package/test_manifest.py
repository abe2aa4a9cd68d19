# SPDX-License-Identifier: Apache-2.0
"""The records of a manifest: what is absent, and what comes back; refusals are in test_verify."""

from __future__ import annotations

import dataclasses

import pytest

from dpfedge.package.manifest import Section, read_manifest
from dpfedge.tensors import TensorSpec

SECTION = Section("s", "asset", 65536, 3, bytes(16), bytes(32), True)


def test_read_manifest__least() -> None:
    """Only format, name and version are required."""
    manifest = read_manifest({"format": [1, 0], "name": "p", "version": "1"}, "m")

    assert (manifest.format, manifest.name, manifest.version, manifest.created) == ((1, 0), "p", "1", None)
    assert not any((manifest.sections, manifest.models, manifest.targets, manifest.licences, manifest.golden))
    with pytest.raises(dataclasses.FrozenInstanceError):
        manifest.name = "q"  # type: ignore[misc]


def test_section__round_trip() -> None:
    """A section's map reads back as the same section."""
    value = {"format": [1, 0], "name": "p", "version": "1", "sections": [SECTION.to_map()]}

    assert read_manifest(value, "m").sections == (SECTION,)
    assert SECTION.end == 65539


def test_target__by_id() -> None:
    """Targets are found by id; ports become tensor specs."""
    spec = TensorSpec("x", "f32", (1, "n"))
    graph = {"section": "s", "inputs": [spec.to_map()], "options": {"a": 1}}
    target = {"id": "cpu", "backend": "cpu", "backend_abi": 1, "memory_bytes": 0, "whitelist": ["board", "host"],
              "models": {"llm": {"graphs": {"step": graph}}}}  # fmt: skip
    manifest = read_manifest({"format": [1, 0], "name": "p", "version": "1", "targets": [target]}, "m")

    assert manifest.target("cpu").models["llm"].graphs["step"].inputs == (spec,)
    with pytest.raises(KeyError):
        manifest.target("gpu")
