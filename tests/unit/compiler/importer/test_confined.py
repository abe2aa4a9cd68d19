# SPDX-License-Identifier: Apache-2.0
"""Names inside model files never lead out of the model's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.compiler.importer.confined import confined
from dpfedge.errors import ModelError


def test_confined__plain_file(tmp_path: Path) -> None:
    """A plain file below the folder is found, in a folder of its own too."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.bin").write_bytes(b"x")

    assert confined(tmp_path, "parts/a.bin", "here", "part").read_bytes() == b"x"


@pytest.mark.parametrize("location", ["", "/etc/hostname", "../a.bin", "parts/../../a.bin", "a\0b"])
def test_confined__leads_out(tmp_path: Path, location: str) -> None:
    """Empty, absolute and climbing names are refused by name."""
    (tmp_path / "a.bin").write_bytes(b"x")
    (tmp_path / "model" / "parts").mkdir(parents=True)

    with pytest.raises(ModelError, match="here: part lies outside the model's folder"):
        confined(tmp_path / "model", location, "here", "part")


def test_confined__link(tmp_path: Path) -> None:
    """A symbolic link that leads out and one that stays inside are both refused, and so is a hard link."""
    (tmp_path / "out.bin").write_bytes(b"x")
    model = tmp_path / "model"
    model.mkdir()
    (model / "real.bin").write_bytes(b"x")
    (model / "out.bin").symlink_to(tmp_path / "out.bin")
    (model / "in.bin").symlink_to(model / "real.bin")
    (model / "hard.bin").hardlink_to(tmp_path / "out.bin")

    with pytest.raises(ModelError, match=r"outside the model's folder; found out\.bin"):
        confined(model, "out.bin", "here", "part")
    for name in ("in.bin", "hard.bin"):
        with pytest.raises(ModelError, match=r"no plain file of its own; found .*copy it beside the model"):
            confined(model, name, "here", "part")
    with pytest.raises(
        ModelError, match=r"part is missing; found absent\.bin; allowed a file below .*fetch it as well"
    ):
        confined(model, "absent.bin", "here", "part")
