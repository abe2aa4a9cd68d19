# SPDX-License-Identifier: Apache-2.0
"""The face of drawn graphs; real processes are in tests/e2e/test_pipeline.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.errors import ConfigError, PackageError
from dpfedge.runtime.pipeline import Pipeline


def test_open__of_a_file_that_does_not_fit_starts_nothing(tmp_path: Path) -> None:
    """By its suffix a pipeline file, checked before a process is started."""
    (tmp_path / "p.yaml").write_text("name: p\npipeline: {stages: {camera: {kind: kamera}}, links: []}\n")

    with pytest.raises(ConfigError, match=r"p\.yaml:2: unknown stage kind"):
        Pipeline.open(tmp_path / "p.yaml")


def test_open__of_anything_else_is_a_package(tmp_path: Path) -> None:
    """With a package's own refusals."""
    (tmp_path / "p.dpfbin").write_bytes(b"no package")

    with pytest.raises(PackageError):
        Pipeline.open(tmp_path / "p.dpfbin")
