# SPDX-License-Identifier: Apache-2.0
"""`dpfedge keygen`: two files, or three with trust, and nothing that was there before is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfedge.cli import main
from dpfedge.cli.trusting import PASSPHRASE
from dpfedge.signing import PrivateKey, PublicKey, Trust

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the test's own; nobody's trust directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFEDGE_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_keygen__writes_a_pair(capsys: Output) -> None:
    """Named by --name; the private half is for its owner."""
    assert main(["keygen", "--name", "lab"]) == 0

    key = PrivateKey.load(Path("lab.key"))
    assert PublicKey.from_pem(Path("lab.pub").read_bytes(), "x") == key.public
    assert Path("lab.key").stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out == (
        f"lab.key: private key, keep it secret\nlab.pub: public key lab ({key.public.key_id})\n"
    )


def test_keygen__trusted_at_once(capsys: Output) -> None:
    """In the directory that is named, with the name the key shall have there."""
    assert main(["keygen", "--name", "oem", "-o", "k.key", "--trust", "keys/trust", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told == {
        "key_id": PrivateKey.load(Path("k.key")).public.key_id, "name": "oem", "private": "k.key", "public": "k.pub",
        "trusted": "keys/trust/oem.pub",
    }  # fmt: skip
    (trusted,) = Trust.load([Path("keys/trust")]).keys.values()
    assert (trusted.name, trusted.key.key_id) == ("oem", told["key_id"])


def test_keygen__trusted_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's directory; the first of DPFEDGE_TRUST where that is set."""
    assert main(["keygen", "-o", "a.key", "--trust"]) == 0
    assert Path("config/dpfedge/trust/a.pub").exists()

    monkeypatch.setenv("DPFEDGE_TRUST", "one:two")
    assert main(["keygen", "-o", "b.key", "--trust"]) == 0
    assert Path("one/b.pub").exists()


def test_keygen__with_a_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment; the file is of no use without it."""
    monkeypatch.setenv(PASSPHRASE, "swordfish")
    assert main(["keygen", "--passphrase"]) == 0

    assert b"ENCRYPTED" in Path("dpfedge.key").read_bytes()
    assert PrivateKey.load(Path("dpfedge.key"), lambda: b"swordfish")


@pytest.mark.parametrize("taken", ["lab.key", "lab.pub", "trust/lab.pub"])
def test_keygen__never_overwrites(capsys: Output, taken: str) -> None:
    """Exit 2, and no other file appears either."""
    Path("trust").mkdir()
    Path(taken).write_text("precious")

    assert main(["keygen", "--name", "lab", "--trust", "trust"]) == 2

    assert capsys.readouterr().err == (
        f"dpfedge: {taken}: the file exists; take another name; a key is never overwritten\n"
    )
    assert [str(path) for path in Path().rglob("lab.*")] == [taken]
    assert Path(taken).read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--name", "a b"], "--name: bad name; found 'a b'"),
        (["--name", "a/b"], "--name: bad name; found 'a/b'"),
        (["-o", "k.pub"], "--out: this is the public key's name; found k.pub; allowed NAME.key"),
        (["-o", "none/k.key"], "none/k.key: cannot write: No such file or directory"),
    ],
)
def test_keygen__refuses_by_name(capsys: Output, arguments: list[str], text: str) -> None:
    """Exit 2; no file."""
    assert main(["keygen", *arguments]) == 2
    assert f"dpfedge: {text}" in capsys.readouterr().err
    assert list(Path().rglob("*.key")) == []


def test_keygen__leaves_nothing_behind_a_failure(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trust directory that cannot be made leaves no half of a pair; nor does a user without one."""
    Path("file").touch()
    assert main(["keygen", "--name", "lab", "--trust", "file/trust"]) == 2
    assert "file/trust: cannot make the folder: Not a directory" in capsys.readouterr().err
    assert list(Path().rglob("lab.*")) == []

    monkeypatch.setattr("dpfedge.cli.keygen.user_folder", lambda: None)
    assert main(["keygen", "--name", "lab", "--trust"]) == 2
    assert "--trust: this user has no trust directory; name one: --trust DIR" in capsys.readouterr().err
    assert list(Path().rglob("lab.*")) == []
