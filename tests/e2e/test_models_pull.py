# SPDX-License-Identifier: Apache-2.0
"""`pull` with the real pip, from a folder instead of an index, without touching the network."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from dpfedge.errors import FetchError
from dpfedge.models import pull
from dpfedge.models.catalogue import CatalogueModel, File, Source

DATA = b"weights" * 100


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one wheel, made for a platform this interpreter does not claim; pip looks only there."""
    path = tmp_path / "wheels" / "tiny_model-1.0-py3-none-manylinux_2_99_x86_64.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/w.bin", DATA)
        info = "tiny_model-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-manylinux_2_99_x86_64\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("DPFEDGE_HOME", str(tmp_path / "home with späce"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return path


def model(*platforms: str) -> CatalogueModel:
    """An entry whose file lies in that wheel."""
    source = Source("wheel", "tiny-model", "1.0", 1000, platforms)
    file = File("w.bin", "tiny_model/w.bin", hashlib.sha256(DATA).hexdigest(), len(DATA))
    return CatalogueModel("tiny", "t", "MIT", "", "", source, {"w.bin": file})


def test_pull__wheel_of_another_platform(wheel: Path) -> None:
    """The data files of a wheel for another platform are good here too."""
    files = pull("tiny", models={"tiny": model("manylinux_2_99_x86_64")})

    assert files.path("w.bin").read_bytes() == DATA


def test_pull__pip_finds_nothing(wheel: Path) -> None:
    """pip's own words are in the error."""
    with pytest.raises(FetchError, match="No matching distribution found for tiny-model==1"):
        pull("tiny", models={"tiny": model()})
