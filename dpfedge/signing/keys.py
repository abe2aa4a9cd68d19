# SPDX-License-Identifier: Apache-2.0
"""Ed25519 keys: PEM files in and out, key ids, and the two operations on bytes; it knows no package and no trust.

A public key is read without the `cryptography` library, which takes tens of milliseconds to import: trust directories
and revocations are looked at on every start, a signature only where one is there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dpfedge import limits
from dpfedge.errors import UsageError
from dpfedge.records import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["KEY_ID_BYTES", "Passphrase", "PrivateKey", "PublicKey", "read_small", "write_new"]

KEY_ID_BYTES = 16
Passphrase = Callable[[], bytes]
"""Asked only for a key that has one."""

_SPKI = bytes.fromhex("302a300506032b6570032100")  # RFC 8410: what stands before the 32 bytes of every Ed25519 key
_RAW_BYTES = 32
_BEGIN, _END = b"-----BEGIN PUBLIC KEY-----", b"-----END PUBLIC KEY-----"
_ENCRYPTED = b"BEGIN ENCRYPTED PRIVATE KEY"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The 32 bytes of an Ed25519 public key."""

    raw: bytes

    @property
    def id(self) -> bytes:
        """The first 16 bytes of the SHA-256 of the key's DER form (SubjectPublicKeyInfo)."""
        return hashlib.sha256(_SPKI + self.raw).digest()[:KEY_ID_BYTES]

    @property
    def key_id(self) -> str:
        """`id` for people and files: 32 hexadecimal digits."""
        return self.id.hex()

    def pem(self) -> bytes:
        """The `.pub` file, as openssl writes it."""
        text = base64.b64encode(_SPKI + self.raw)
        return b"-----BEGIN PUBLIC KEY-----\n" + text + b"\n-----END PUBLIC KEY-----\n"

    @classmethod
    def from_pem(cls, data: bytes, where: str) -> PublicKey:
        """The key in the bytes of a `.pub` file; UsageError for anything but one Ed25519 key."""
        text = data.strip()
        if not text.startswith(_BEGIN) or not text.endswith(_END) or len(text) < len(_BEGIN + _END):
            raise UsageError(
                "not a public key", where=where, allowed="one PEM block, BEGIN PUBLIC KEY",
                remedy="use the .pub file that `dpfedge keygen` wrote",
            )  # fmt: skip
        try:
            der = base64.b64decode(b"".join(text[len(_BEGIN) : -len(_END)].split()), validate=True)
        except binascii.Error as error:
            raise UsageError("not a public key: broken base64", where=where) from error
        if len(der) != len(_SPKI) + _RAW_BYTES or not der.startswith(_SPKI):
            raise UsageError("not an Ed25519 key", where=where, allowed="Ed25519 (RFC 8410)")
        return cls(der[len(_SPKI) :])

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` (64 bytes) is this key's of `message`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):  # ValueError: 32 bytes that are no point of the curve
            return False
        return True


class PrivateKey:
    """A key that signs; made by `generate` or `load`."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> PrivateKey:
        """A new key from the system's randomness."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path, passphrase: Passphrase | None = None) -> PrivateKey:
        """The key in a PKCS #8 PEM file; UsageError when it is none, or its passphrase is missing or wrong."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        data, where = read_small(path, limits.KEY_FILE_MAX_BYTES), os.fspath(path)
        word = None
        if _ENCRYPTED in data:
            if passphrase is None:
                raise UsageError("the key needs a passphrase", where=where)
            word = passphrase()
        try:
            key = load_pem_private_key(data, word)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            what = "not a private key" if word is None else "not a private key, or a wrong passphrase"
            raise UsageError(what, where=where, allowed="PKCS #8 PEM, as `dpfedge keygen` writes it") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise UsageError("not an Ed25519 key", where=where, found=type(key).__name__, allowed="Ed25519")
        return cls(key)

    def save(self, path: Path, passphrase: bytes | None = None) -> None:
        """Write a new PKCS #8 PEM file that only its owner may read; UsageError when `path` is taken."""
        from cryptography.hazmat.primitives import serialization as form

        locked = form.BestAvailableEncryption(passphrase) if passphrase else form.NoEncryption()
        data = self._key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked)
        write_new(path, data, 0o600)

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature; the same for the same message."""
        return self._key.sign(message)


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a durable file that was not there; UsageError when it was, or cannot be written."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
    except FileExistsError as error:
        remedy = "take another name; a key is never overwritten"
        raise UsageError("the file exists", where=os.fspath(path), remedy=remedy) from error
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", where=os.fspath(path)) from error


def read_small(path: Path, most: int) -> bytes:
    """The bytes of a file of at most `most` bytes; UsageError otherwise."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=os.fspath(path)) from error
    if len(data) > most:
        raise UsageError("the file is too large", where=os.fspath(path), allowed=f"at most {most} bytes")
    return data
