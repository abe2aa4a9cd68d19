# SPDX-License-Identifier: Apache-2.0
"""Ed25519 keys in files: what is written can be read, by others too; everything else is refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from dpfedge.errors import UsageError
from dpfedge.signing.keys import PrivateKey, PublicKey, read_small, write_new

GOLDEN = Path(__file__).parents[2] / "golden"
PLAIN = form.NoEncryption()


def test_key_id__is_what_the_format_says() -> None:
    """The ids of RFC 8032's first two keys, as `openssl … | sha256sum | cut -c1-32` prints them."""
    ids = [PublicKey.from_pem((GOLDEN / f"trust/test-{n}.pub").read_bytes(), n).key_id for n in ("supplier", "oem")]

    assert ids == ["06e3fd8fda29bb60ab59557de61edb0a", "deb2ded39dc26fce0e6085b6fc34bf6b"]


def test_private_key__golden_files_are_the_keys_of_the_rfc() -> None:
    """Secret to nobody, so nobody can trust them by mistake for a real one."""
    key = PrivateKey.load(GOLDEN / "keys/test-supplier.key")

    assert key.public.raw.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert key.sign(b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e0652249015")


def test_pem__is_what_the_library_writes() -> None:
    """Our `.pub` is the SubjectPublicKeyInfo that every other program reads."""
    key = PrivateKey.generate()
    theirs = key._key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)

    assert key.public.pem() == theirs
    assert PublicKey.from_pem(theirs.replace(b"\n", b"\r\n"), "x") == key.public


@given(st.binary(min_size=32, max_size=32))
def test_pem__there_and_back(raw: bytes) -> None:
    """Any 32 bytes."""
    assert PublicKey.from_pem(PublicKey(raw).pem(), "x") == PublicKey(raw)


@given(st.binary(max_size=300))
def test_from_pem__arbitrary_bytes(data: bytes) -> None:
    """Nothing but UsageError leaves."""
    for text in (data, b"-----BEGIN PUBLIC KEY-----\n" + data + b"\n-----END PUBLIC KEY-----\n"):
        with pytest.raises(UsageError, match=r"^k\.pub: not a"):
            PublicKey.from_pem(text, "k.pub")


def test_from_pem__of_another_kind_of_key() -> None:
    """A P-256 key has the right form and is no Ed25519 key."""
    point = ec.generate_private_key(ec.SECP256R1()).public_key()
    data = point.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)

    with pytest.raises(UsageError, match=r"^k\.pub: not an Ed25519 key; allowed Ed25519 \(RFC 8410\)$"):
        PublicKey.from_pem(data, "k.pub")


def test_sign__verifies_with_its_own_key_only() -> None:
    """Another key, another message, another signature: false, and no exception."""
    key, other = PrivateKey.generate(), PrivateKey.generate()
    signature = key.sign(b"message")

    assert key.public.verify(signature, b"message")
    assert not other.public.verify(signature, b"message")
    assert not key.public.verify(signature, b"messagf")
    assert not key.public.verify(bytes([signature[0] ^ 1]) + signature[1:], b"message")
    assert not key.public.verify(signature[:-1], b"message")


def test_verify__the_second_half_has_one_form() -> None:
    """The signature with the group's order added to its second half is refused: nothing is malleable."""
    key = PrivateKey.generate()
    signature = key.sign(b"m")
    order = 2**252 + 27742317777372353535851937790883648493
    other = signature[:32] + (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")

    assert not key.public.verify(other, b"m")


def test_save__is_for_its_owner_only_and_never_overwrites(tmp_path: Path) -> None:
    """Mode 0600; a name that is taken stays what it was."""
    key, path = PrivateKey.generate(), tmp_path / "k.key"
    key.save(path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert PrivateKey.load(path).public == key.public
    with pytest.raises(UsageError, match=r"k\.key: the file exists; take another name; a key is never overwritten"):
        PrivateKey.generate().save(path)
    assert PrivateKey.load(path).public == key.public


def test_save__with_a_passphrase(tmp_path: Path) -> None:
    """Asked for only where there is one; a wrong or missing one is said."""
    key, path = PrivateKey.generate(), tmp_path / "k.key"
    key.save(path, b"swordfish")

    assert PrivateKey.load(path, lambda: b"swordfish").public == key.public
    with pytest.raises(UsageError, match="not a private key, or a wrong passphrase"):
        PrivateKey.load(path, lambda: b"marlin")
    with pytest.raises(UsageError, match="the key needs a passphrase"):
        PrivateKey.load(path)


def test_load__refuses_by_name(tmp_path: Path) -> None:
    """A public key, another algorithm, a folder, a file that is too large, none at all."""
    path = tmp_path / "k.key"
    cases: list[tuple[bytes, str]] = [
        (PrivateKey.generate().public.pem(), "not a private key; allowed PKCS #8 PEM"),
        (b"", "not a private key"),
        (b"x" * 9000, "the file is too large; allowed at most 8192 bytes"),
        (
            ec.generate_private_key(ec.SECP256R1()).private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, PLAIN),
            "not an Ed25519 key; found ECPrivateKey; allowed Ed25519",
        ),
    ]
    for data, message in cases:
        path.write_bytes(data)
        with pytest.raises(UsageError) as caught:
            PrivateKey.load(path)
        assert str(caught.value).startswith(f"{path}: {message}")
    for place, message in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file or directory")):
        with pytest.raises(UsageError, match=f"cannot read: {message}"):
            PrivateKey.load(place)


def test_write_new__into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """A usage error, no traceback."""
    with pytest.raises(UsageError, match="cannot write: No such file or directory"):
        write_new(tmp_path / "none" / "k", b"", 0o600)
    (tmp_path / "k").write_bytes(b"123")
    assert read_small(tmp_path / "k", 3) == b"123"


def test_import__brings_no_cryptography() -> None:
    """Trust directories are read without it."""
    code = (
        "import sys, dpfedge.signing as s; s.Trust.load(());"
        "sys.exit('cryptography' if 'cryptography' in sys.modules else '')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stderr.strip() == ""
