# SPDX-License-Identifier: Apache-2.0
"""`dpfedge sign`: in place or elsewhere, with one key or more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dpfedge.cli import main

GOLDEN = Path(__file__).parents[2] / "golden"
SUPPLIER, OEM = "06e3fd8fda29bb60ab59557de61edb0a", "deb2ded39dc26fce0e6085b6fc34bf6b"

Output = pytest.CaptureFixture[str]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of a golden package without signatures."""
    return Path(shutil.copy(GOLDEN / "v1/tiny.dpfbin", tmp_path))


def key(name: str) -> str:
    """Path of a test key."""
    return str(GOLDEN / f"keys/test-{name}.key")


def test_sign__in_place_then_verify(package: Path, capsys: Output) -> None:
    """What one command signs the other one finds."""
    assert main(["sign", str(package), "--key", key("oem")]) == 0
    assert capsys.readouterr().out == f"{package}: signed by {OEM}\n"

    assert main(["verify", str(package), "--trust", str(GOLDEN / "trust")]) == 0
    assert f"  signature of test-oem ({OEM}): trusted\n" in capsys.readouterr().out


def test_sign__with_several_keys_into_another_file(package: Path, capsys: Output) -> None:
    """The original stays as it was; --json names all that signed."""
    before, out = package.read_bytes(), package.with_name("signed.dpfbin")
    keys = ["--key", key("oem"), "--key", key("supplier")]
    assert main(["sign", str(package), *keys, "--out", str(out), "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {"package": str(out), "signatures": [SUPPLIER, OEM]}
    assert package.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("none.key", 2, "cannot read: No such file or directory"),
        ("trust/test-oem.pub", 2, "not a private key; allowed PKCS #8 PEM"),
    ],
)
def test_sign__with_what_is_no_key(package: Path, capsys: Output, name: str, code: int, text: str) -> None:
    """The package is not touched."""
    before = package.read_bytes()
    assert main(["sign", str(package), "--key", str(GOLDEN / name)]) == code
    assert text in capsys.readouterr().err
    assert package.read_bytes() == before


def test_sign__what_is_no_package(tmp_path: Path, capsys: Output) -> None:
    """Exit 4, as every verb that opens one."""
    assert main(["sign", str(tmp_path / "none"), "--key", key("oem")]) == 4
    assert "cannot open the package" in capsys.readouterr().err
