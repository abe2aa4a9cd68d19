# SPDX-License-Identifier: Apache-2.0
"""One board file in, its checked content out: from the index beside it when the file is the one that was indexed.

The index (`boards/_index.json`) holds what YAML reader and schema said of the very same bytes, so that binding on a
known board needs neither. A file that differs from it, or a folder without one, is read and checked as always.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from dpfedge.errors import ConfigError

__all__ = ["INDEX", "SCHEMA", "board_data", "make_index", "match_terms", "own_folder"]

INDEX, SCHEMA = "_index.json", "_schema.yaml"


def own_folder() -> Path:
    """The boards of the installed package; in the source tree that is a link to `boards/`."""
    return Path(__file__).parents[1] / "_boards"


def board_data(path: Path) -> Mapping[str, Any]:
    """The whole file; ConfigError names the place that breaks `boards/_schema.yaml`."""
    return _whole(path, *_stamp(path))


def match_terms(path: Path) -> Mapping[str, Any]:
    """Only `match`: what follows it is neither read nor checked when the file is not indexed."""
    return _terms(path, *_stamp(path))


def make_index(folder: Path) -> str:
    """The text of the index of a folder's boards."""
    paths = sorted(folder.glob("[!_.]*.yaml"))
    entries = {path.name: {"sha256": _digest(path.read_bytes()), "board": _checked(path)} for path in paths}
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError("the file cannot be read", where=str(path), found=error.strerror) from error
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _whole(path: Path, mtime_ns: int, size: int) -> Mapping[str, Any]:
    indexed = _indexed(path)
    return _checked(path) if indexed is None else indexed


@lru_cache(maxsize=64)
def _terms(path: Path, mtime_ns: int, size: int) -> Mapping[str, Any]:
    if (indexed := _indexed(path)) is not None:
        return indexed["match"]  # type: ignore[no-any-return]
    from dpfedge.config import check, load_key

    terms = load_key(path, "match")
    check(terms, {**_schema()["properties"]["match"], "$defs": _schema()["$defs"]}, path)
    return terms  # type: ignore[no-any-return]


def _checked(path: Path) -> Mapping[str, Any]:
    from dpfedge.config import check, load_yaml, plain

    data = load_yaml(path)
    check(data, _schema(), path)
    return plain(data)  # type: ignore[no-any-return]


@cache
def _schema() -> Mapping[str, Any]:
    from dpfedge.config import load_yaml, plain

    return plain(load_yaml(own_folder() / SCHEMA))  # type: ignore[no-any-return]


def _indexed(path: Path) -> Mapping[str, Any] | None:
    entry = _index(path.parent).get(path.name)
    return entry["board"] if entry is not None and entry["sha256"] == _digest(path.read_bytes()) else None


@cache
def _index(folder: Path) -> Mapping[str, Any]:
    try:
        return json.loads((folder / INDEX).read_bytes())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError("the index cannot be read", where=str(folder / INDEX), remedy="remove it") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
