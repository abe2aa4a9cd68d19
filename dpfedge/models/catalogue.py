# SPDX-License-Identifier: Apache-2.0
"""The catalogue of models dpfedge can fetch: `catalogue.yaml` goes in, frozen entries come out; it fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from dpfedge.config import load_yaml, nearest
from dpfedge.errors import ConfigError, FetchError
from dpfedge.records import dataclass

__all__ = ["CatalogueModel", "File", "Source", "catalogue", "entry", "load_catalogue"]

_FILE = Path(__file__).with_name("catalogue.yaml")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")


@dataclass(frozen=True, slots=True)
class File:
    """One file of a model: its name in the cache, where it comes from, and what it must be."""

    name: str
    origin: str
    """Path inside the wheel, or the URL."""
    sha256: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where the files come from. `kind` is `wheel` (distribution, version) or `url` (each file has its own)."""

    kind: str
    distribution: str = ""
    version: str = ""
    download_bytes: int = 0
    platforms: tuple[str, ...] = ()
    """Platforms whose wheel holds the same data files, for machines that have no wheel of their own."""

    def __str__(self) -> str:
        return f"wheel {self.distribution} {self.version}" if self.kind == "wheel" else "url"


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """One model of the catalogue."""

    name: str
    title: str
    licence: str
    note: str
    homepage: str
    source: Source
    files: Mapping[str, File]

    @property
    def nbytes(self) -> int:
        """Size of all files in the cache."""
        return sum(file.nbytes for file in self.files.values())


@cache
def catalogue() -> Mapping[str, CatalogueModel]:
    """Every model dpfedge ships an entry for, by name."""
    return load_catalogue(_FILE)


def entry(name: str, models: Mapping[str, CatalogueModel] | None = None) -> CatalogueModel:
    """The entry of one model; FetchError names the nearest known one."""
    known = catalogue() if models is None else models
    try:
        return known[name]
    except KeyError:
        allowed = ", ".join(known)
        remedy = nearest(name, known)
        raise FetchError("no such model in the catalogue", found=name, allowed=allowed, remedy=remedy) from None


def load_catalogue(path: Path) -> Mapping[str, CatalogueModel]:
    """Read a catalogue file; ConfigError names file and line of what is wrong."""
    models = _field(load_yaml(path), "models", dict)
    return MappingProxyType({name: _model(name, _field(models, name, dict), models) for name in models})


def _model(name: str, data: Any, parent: Any) -> CatalogueModel:
    _checked_name(name, parent)
    source = _source(_field(data, "source", dict))
    files = _field(data, "files", dict)
    return CatalogueModel(
        name=name,
        title=_field(data, "title", str),
        licence=_field(data, "licence", str),
        note=_field(data, "note", str),
        homepage=_field(data, "homepage", str),
        source=source,
        files=MappingProxyType({file: _file(file, _field(files, file, dict), source, files) for file in files}),
    )


def _source(data: Any) -> Source:
    kind = _field(data, "kind", str)
    if kind == "url":
        return Source("url")
    if kind != "wheel":
        raise ConfigError("unknown kind of source", where=data.where("kind"), found=kind, allowed="wheel, url")
    return Source(
        kind,
        _field(data, "distribution", str),
        _field(data, "version", str),
        _field(data, "download_bytes", int),
        tuple(_field(data, "platforms", list)) if "platforms" in data else (),
    )


def _file(name: str, data: Any, source: Source, parent: Any) -> File:
    _checked_name(name, parent)
    key = "path" if source.kind == "wheel" else "url"
    origin, sha256 = _field(data, key, str), _field(data, "sha256", str)
    if key == "url" and urlsplit(origin).scheme not in ("https", "http"):
        raise ConfigError("unknown kind of URL", where=data.where(key), found=origin, allowed="https, http")
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ConfigError("not a SHA-256", where=data.where("sha256"), found=sha256, allowed="64 hexadecimal digits")
    return File(name, origin, sha256, _field(data, "bytes", int))


def _checked_name(name: str, parent: Any) -> None:
    # Names become folders and files of the cache.
    if not _NAME.fullmatch(name):
        raise ConfigError("bad name", where=parent.where(name), found=repr(name), allowed="letters, digits, . _ + -")


def _field(data: Any, key: str, kind: type) -> Any:
    value = data.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = "nothing" if value is None else repr(value)
        what = f"{key} is missing or of a wrong type"
        raise ConfigError(what, where=data.where(key), found=found, allowed=kind.__name__)
    return value
