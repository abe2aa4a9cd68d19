# SPDX-License-Identifier: Apache-2.0
"""The model cache on disk: entries of the catalogue in, folders and verified files out; it downloads nothing.

Layout: `<root>/<model>/<file>`. A file gets its name only after its SHA-256 was checked. `.verified.json` remembers
size and time of files whose digest was checked, so that the next use costs one `stat` per file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dpfedge.errors import FetchError
from dpfedge.models.catalogue import CatalogueModel, File

__all__ = ["folder", "locked", "missing", "place", "remove", "root", "workspace", "writable"]

_STAMP = ".verified.json"
_CHUNK_BYTES = 1 << 20


def root() -> Path:
    """`$DPFEDGE_HOME/models`, else `$XDG_CACHE_HOME/dpfedge/models`, else `~/.cache/dpfedge/models`."""
    home = os.environ.get("DPFEDGE_HOME")
    if home:
        return Path(home).absolute() / "models"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if xdg.startswith("/"):  # the XDG specification tells to ignore relative paths
        return Path(xdg) / "dpfedge" / "models"
    try:
        return Path.home() / ".cache" / "dpfedge" / "models"
    except RuntimeError as error:
        remedy = "set DPFEDGE_HOME to a folder you can write"
        raise FetchError("no home folder for the model cache", found=str(error), remedy=remedy) from error


def folder(model: CatalogueModel) -> Path:
    """Where the files of a model lie, or would."""
    return root() / model.name


@contextlib.contextmanager
def writable(where: Path) -> Iterator[None]:
    """Turn file system errors below into FetchError with the place and what to do."""
    try:
        yield
    except OSError as error:
        remedy = "free some space, or set DPFEDGE_HOME to a folder you can write"
        raise FetchError(f"cannot write the model cache: {error.strerror}", where=str(where), remedy=remedy) from error


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock for one source; a second process waits here until the first has finished or died."""
    with writable(root()):
        root().mkdir(parents=True, exist_ok=True)
        file = (root() / f".{name}.lock").open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def workspace(name: str) -> Iterator[Path]:
    """An empty folder beside the models, removed afterwards; what a killed process left there is removed first."""
    path = root() / f".{name}.work"
    with writable(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def missing(model: CatalogueModel) -> list[File]:
    """Files of the model that are not in the cache, or are there with other content."""
    base = folder(model)
    stamps = _read_stamps(base)
    fresh = {file.name: _stamp(base / file.name, file, stamps.get(file.name)) for file in model.files.values()}
    good = {name: stamp for name, stamp in fresh.items() if stamp is not None}
    if good and good != stamps:
        # A cache that only can be read works too; its files are then hashed on each use.
        with contextlib.suppress(OSError):
            _replace(base / _STAMP, json.dumps(good).encode())
    return [file for file in model.files.values() if fresh[file.name] is None]


def place(model: CatalogueModel, file: File, chunks: Iterable[bytes], where: str) -> Path:
    """Write one file from its bytes, check size and SHA-256, and only then give it its name."""
    base = folder(model)
    target, part = base / file.name, base / f".{file.name}.new"
    digest, size = hashlib.sha256(), 0
    with writable(target):
        base.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as out:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    if size > file.nbytes:
                        break
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
            _check(file, size, digest.hexdigest(), where)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return target


def remove(model: CatalogueModel) -> int:
    """Delete the model's files; the number of bytes that became free."""
    base = folder(model)
    if not base.is_dir():
        return 0
    with writable(base):
        freed = sum(path.stat().st_size for path in base.iterdir())
        shutil.rmtree(base)
    return freed


def _check(file: File, size: int, digest: str, where: str) -> None:
    remedy = "the source does not give what the catalogue promises; nothing was kept"
    if size != file.nbytes:
        found = f"more than {file.nbytes}" if size > file.nbytes else size
        raise FetchError(f"{file.name} has a wrong size", where=where, found=found, allowed=file.nbytes, remedy=remedy)
    if digest != file.sha256:
        what = f"{file.name} has a wrong SHA-256"
        raise FetchError(what, where=where, found=digest, allowed=file.sha256, remedy=remedy)


def _read_stamps(base: Path) -> dict[str, Any]:
    try:
        stamps = json.loads((base / _STAMP).read_bytes())
    except (OSError, ValueError):  # absent or damaged: everything is hashed again
        return {}
    return stamps if isinstance(stamps, dict) else {}


def _stamp(path: Path, file: File, known: Any) -> list[Any] | None:
    try:
        status = path.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino, file.sha256]
        if known == stamp:
            return stamp
        return stamp if status.st_size == file.nbytes and _sha256(path) == file.sha256 else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FetchError(f"cannot read the model cache: {error.strerror}", where=str(path)) from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_bytes(data)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
