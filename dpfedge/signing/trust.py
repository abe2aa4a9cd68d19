# SPDX-License-Identifier: Apache-2.0
"""Whom this machine trusts: folders of public keys and revocations in, questions about keys and manifests answered.

A trust directory holds `NAME.pub` (one Ed25519 key in PEM each) and, if anything was revoked, `revoked.txt`: on each
line a key id (32 hexadecimal digits) or the SHA-256 of a manifest (64); the rest of a line behind `#` is a comment.
Nothing is passed over: a file that cannot be understood ends the reading. No cryptography is imported here.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dpfedge import limits
from dpfedge.errors import SignatureError, UsageError
from dpfedge.package.fields import is_name
from dpfedge.records import dataclass
from dpfedge.signing.keys import KEY_ID_BYTES, PublicKey, read_small

__all__ = ["REVOKED", "Trust", "Trusted", "trust_folders", "user_folder"]

REVOKED = "revoked.txt"
_VARIABLE = "DPFEDGE_TRUST"
_SYSTEM = Path("/etc/dpfedge/trust")
_DIGEST_BYTES = 32
_ENTRY = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Trusted:
    """A key with the name its file gives it."""

    key: PublicKey
    name: str


@dataclass(frozen=True, slots=True)
class Trust:
    """What the trust directories say together: a key of any counts, a revocation in any counts."""

    folders: tuple[Path, ...]
    """The directories that were read."""
    keys: Mapping[bytes, Trusted]
    """By `PublicKey.id`; revoked ones are among them."""
    revoked_keys: Mapping[bytes, str]
    """Key id → file and line that revoke it."""
    revoked_manifests: Mapping[bytes, str]
    """SHA-256 of a manifest → file and line that revoke it."""

    @classmethod
    def load(cls, folders: Sequence[str | os.PathLike[str]] | None = None) -> Trust:
        """Read `folders`, or those of `trust_folders()`; UsageError names a file that is no key, or a bad line."""
        if isinstance(folders, str | os.PathLike):
            what, found = "one folder where a list of folders is expected", os.fspath(folders)
            raise UsageError(what, where="trust", found=found, remedy=f"write [{found!r}]")
        named = trust_folders() if folders is None else tuple(map(Path, folders))
        keys: dict[bytes, Trusted] = {}
        revoked: dict[bytes, str] = {}
        for folder in named:
            for trusted in _keys(folder):
                keys.setdefault(trusted.key.id, trusted)
            for digest, place in _revocations(folder / REVOKED):
                revoked.setdefault(digest, place)
        of_keys = {digest: place for digest, place in revoked.items() if len(digest) == KEY_ID_BYTES}
        others = {digest: place for digest, place in revoked.items() if len(digest) == _DIGEST_BYTES}
        return cls(named, keys, of_keys, others)

    def refuse_revoked(self, where: str, manifest_sha256: bytes, key_id: str | None = None) -> None:
        """SignatureError when the manifest was revoked, or the key (32 hexadecimal digits) its signature was made with.

        For a package whose signature was checked before and recorded, this is all that can have changed.
        """
        if place := self.revoked_manifests.get(manifest_sha256):
            raise SignatureError(
                "this version of the package was revoked", where=where, found=f"manifest {manifest_sha256.hex()}",
                allowed=f"nothing that {place} names", remedy="install another version",
            )  # fmt: skip
        if key_id is not None and (place := self.revoked_keys.get(bytes.fromhex(key_id))):
            raise SignatureError(
                "the key that signed the package was revoked", where=where, found=f"key {key_id}",
                allowed=f"nothing that {place} names", remedy="get the package signed anew with another key",
            )  # fmt: skip


def trust_folders(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The trust directories when none are given: those of DPFEDGE_TRUST, else the system's and the user's."""
    if named := environ.get(_VARIABLE):
        return tuple(Path(part) for part in named.split(os.pathsep) if part)
    user = user_folder(environ)
    return tuple(folder for folder in (_SYSTEM, user) if folder is not None and _is_there(folder))


def user_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The user's own trust directory, whether it is there or not; None for a user without a home."""
    if home := environ.get("XDG_CONFIG_HOME"):
        return Path(home) / "dpfedge" / "trust"
    try:
        return Path.home() / ".config" / "dpfedge" / "trust"
    except RuntimeError:  # neither HOME nor an entry in the table of users
        return None


def _is_there(path: Path) -> bool:
    """Whether the name is taken, if only by a broken link; what cannot be looked at is, and reading says why."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def _keys(folder: Path) -> Iterator[Trusted]:
    _refuse_shared(folder)
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".pub")
    except OSError as error:
        remedy = "name a folder with .pub files: --trust DIR, or DPFEDGE_TRUST"
        raise UsageError(
            f"cannot read the trust directory: {error.strerror}", where=os.fspath(folder), remedy=remedy
        ) from error
    if len(files) > limits.TRUST_KEYS_MAX:
        raise UsageError("too many keys", where=os.fspath(folder), found=len(files), allowed=limits.TRUST_KEYS_MAX)
    for path in files:
        if not is_name(path.stem):
            raise UsageError("bad name of a key", where=os.fspath(path), allowed="letters, digits, . _ + @ -")
        data = _read(path, limits.KEY_FILE_MAX_BYTES)
        yield Trusted(PublicKey.from_pem(data, os.fspath(path)), path.stem)


def _read(path: Path, most: int) -> bytes:
    mode = _refuse_shared(path)
    if mode is not None and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UsageError("not a regular file", where=os.fspath(path))  # a FIFO would be waited for
    return read_small(path, most)


def _refuse_shared(path: Path) -> int | None:
    """What anybody may write is trusted by nobody; the mode of everything else."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return None  # reading it says why
    if mode & stat.S_IWOTH:
        raise UsageError(
            "everybody may write it", where=os.fspath(path), found=f"mode {stat.S_IMODE(mode):04o}",
            remedy=f"chmod o-w {path}",
        )  # fmt: skip
    return mode


def _revocations(path: Path) -> Iterator[tuple[bytes, str]]:
    """Digest and place of each line; its length says whether it is a key's or a manifest's."""
    if not _is_there(path):
        return
    data = _read(path, limits.REVOKED_MAX_BYTES)
    for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), 1):
        entry = line.partition("#")[0].strip().lower()
        if not entry:
            continue
        place = f"{path}:{number}"
        if not _ENTRY.fullmatch(entry) or len(entry) not in (2 * KEY_ID_BYTES, 2 * _DIGEST_BYTES):
            raise UsageError(
                "bad line", where=place, found=repr(entry[:80]),
                allowed="a key id (32 hexadecimal digits) or the SHA-256 of a manifest (64)",
            )  # fmt: skip
        yield bytes.fromhex(entry), place
