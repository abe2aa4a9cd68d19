# SPDX-License-Identifier: Apache-2.0
"""Trust directories: what is in them counts, what cannot be understood ends the reading with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfedge import limits
from dpfedge.errors import SignatureError, UsageError
from dpfedge.signing import PrivateKey, Trust
from dpfedge.signing.trust import REVOKED, trust_folders, user_folder

KEY_ID, DIGEST = "0123456789abcdef" * 2, "0123456789abcdef" * 4


def test_load__keys_have_the_names_of_their_files(folder: Path, key: PrivateKey) -> None:
    """Other files are none of its business."""
    (folder / "README").write_text("not a key")
    trust = Trust.load([folder])

    assert {key_id: one.name for key_id, one in trust.keys.items()} == {key.public.id: "oem"}
    assert (trust.folders, trust.revoked_keys, trust.revoked_manifests) == ((folder,), {}, {})


def test_load__folders_as_text(folder: Path) -> None:
    """An embedder's list of texts is a list of folders; one text is not a list of letters."""
    assert Trust.load([str(folder)]).folders == (folder,)
    with pytest.raises(UsageError, match=r"trust: one folder where a list of folders is expected; .*write \["):
        Trust.load(str(folder))


def test_load__of_several_folders(tmp_path: Path, folder: Path, key: PrivateKey, other: PrivateKey) -> None:
    """Keys of all; the first name of a key counts; a revocation in any counts."""
    second = tmp_path / "second"
    second.mkdir()
    (second / "again.pub").write_bytes(key.public.pem())
    (second / "more.pub").write_bytes(other.public.pem())
    (second / REVOKED).write_text(key.public.key_id)
    trust = Trust.load([folder, second])

    assert {one.name for one in trust.keys.values()} == {"oem", "more"}
    assert trust.revoked_keys == {key.public.id: f"{second / REVOKED}:1"}


def test_load__revocations_with_comments(folder: Path) -> None:
    """Key ids and manifests by their length, in any case, with the line that says so."""
    text = f"# list of May\n\n  {KEY_ID.upper()}   # stolen laptop\n{DIGEST}\n{DIGEST} # again\n"
    (folder / REVOKED).write_text(text)
    trust = Trust.load([folder])

    assert trust.revoked_keys == {bytes.fromhex(KEY_ID): f"{folder / REVOKED}:3"}
    assert trust.revoked_manifests == {bytes.fromhex(DIGEST): f"{folder / REVOKED}:4"}


@pytest.mark.parametrize("line", ["demo", KEY_ID[:-1], KEY_ID + "0", DIGEST + "00", f"{KEY_ID} {KEY_ID}", "ключ", "\0"])
def test_load__a_bad_line_is_an_error(folder: Path, line: str) -> None:
    """A revocation with a slip of the pen must not be one that does nothing."""
    (folder / REVOKED).write_text(f"# first\n{line}\n")

    with pytest.raises(UsageError) as caught:
        Trust.load([folder])
    assert str(caught.value) == (
        f"{folder / REVOKED}:2: bad line; found {line!r}; "
        "allowed a key id (32 hexadecimal digits) or the SHA-256 of a manifest (64)"
    )


def test_load__what_is_no_key_is_an_error(folder: Path) -> None:
    """With the name of the file; so is a name that would break a log line."""
    bad = folder / "bad.pub"
    bad.write_bytes(PrivateKey.generate().public.pem()[:-40])
    with pytest.raises(UsageError, match=r"bad\.pub: not a public key"):
        Trust.load([folder])
    bad.rename(folder / "bad name.pub")
    with pytest.raises(UsageError, match=r"bad name\.pub: bad name of a key"):
        Trust.load([folder])


def test_load__a_folder_that_is_named_must_be_there(tmp_path: Path) -> None:
    """It is not taken for one that trusts nobody."""
    with pytest.raises(UsageError, match="none: cannot read the trust directory: No such file or directory; name a"):
        Trust.load([tmp_path / "none"])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot read the trust directory: Not a directory"):
        Trust.load([tmp_path / "file"])


@pytest.mark.parametrize("name", ["oem.pub", REVOKED, "."])
def test_load__what_anybody_may_write_is_refused(folder: Path, name: str) -> None:
    """The folder, a key, the revocations."""
    place = folder / name
    place.touch()
    place.chmod(0o777)

    with pytest.raises(UsageError, match=r"everybody may write it; found mode 0777; chmod o-w"):
        Trust.load([folder])


def test_load__revocations_behind_a_broken_link_are_an_error(folder: Path) -> None:
    """They were meant to be there."""
    (folder / REVOKED).symlink_to(folder / "moved")

    with pytest.raises(UsageError, match=r"revoked\.txt: cannot read: No such file or directory"):
        Trust.load([folder])


@pytest.mark.parametrize("name", ["fifo.pub", REVOKED])
def test_load__waits_for_no_fifo(folder: Path, name: str) -> None:
    """A start must not hang on a file of the trust directory."""
    os.mkfifo(folder / name)

    with pytest.raises(UsageError, match="not a regular file"):
        Trust.load([folder])


def test_load__is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Number of keys, size of a key, size of the revocations."""
    (folder / REVOKED).write_text("#" * 100)
    for name, value, text in (
        ("TRUST_KEYS_MAX", 0, "too many keys; found 1; allowed 0"),
        ("KEY_FILE_MAX_BYTES", 9, "the file is too large; allowed at most 9 bytes"),
        ("REVOKED_MAX_BYTES", 99, "the file is too large; allowed at most 99 bytes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(limits, name, value)
            with pytest.raises(UsageError, match=text):
                Trust.load([folder])


def test_folders__by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable alone, else the folders of system and user that are there."""
    monkeypatch.setattr("dpfedge.signing.trust._SYSTEM", tmp_path / "none")
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    user = tmp_path / "dpfedge/trust"

    assert trust_folders(environ) == ()
    user.mkdir(parents=True)
    assert trust_folders(environ) == (user,)
    assert trust_folders({**environ, "DPFEDGE_TRUST": "/a:/b"}) == (Path("/a"), Path("/b"))
    assert user_folder({}) == Path.home() / ".config/dpfedge/trust"
    monkeypatch.setenv("DPFEDGE_TRUST", str(tmp_path))
    assert Trust.load().folders == (tmp_path,)
    assert Trust.load(()).folders == ()


def test_folders__one_that_cannot_be_read_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it revokes is not lost with the disk it is on."""
    monkeypatch.setattr("dpfedge.signing.trust._SYSTEM", tmp_path / "system")
    (tmp_path / "system").symlink_to("not-mounted")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("DPFEDGE_TRUST", raising=False)

    with pytest.raises(UsageError, match="system: cannot read the trust directory: No such file or directory"):
        Trust.load()


def test_folders__of_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container often runs as a number that no table of users has."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("dpfedge.signing.trust._SYSTEM", tmp_path)
    monkeypatch.setattr(Path, "home", home)

    assert user_folder({}) is None
    assert trust_folders({}) == (tmp_path,)


def test_refuse_revoked__manifest_and_key(folder: Path) -> None:
    """What an installed package is asked at every start; nothing is computed."""
    (folder / REVOKED).write_text(f"{KEY_ID}\n{DIGEST}\n")
    trust = Trust.load([folder])

    trust.refuse_revoked("p", bytes(32), "00" * 16)
    with pytest.raises(SignatureError) as caught:
        trust.refuse_revoked("p", bytes.fromhex(DIGEST))
    assert str(caught.value) == (
        f"p: this version of the package was revoked; found manifest {DIGEST}; "
        f"allowed nothing that {folder / REVOKED}:2 names; install another version"
    )
    with pytest.raises(SignatureError) as caught:
        trust.refuse_revoked("p", bytes(32), KEY_ID)
    assert str(caught.value) == (
        f"p: the key that signed the package was revoked; found key {KEY_ID}; "
        f"allowed nothing that {folder / REVOKED}:1 names; get the package signed anew with another key"
    )
