# SPDX-License-Identifier: Apache-2.0
"""Strict YAML: a file goes in, mappings that know the line of each key come out.

It merges no files, follows no tags, anchors or aliases, and knows no schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dpfedge import limits
from dpfedge.config.places import Items, Section
from dpfedge.errors import ConfigError

__all__ = ["load_key", "load_yaml", "parse_yaml"]

_LOADER: Any = getattr(
    yaml, "CBaseLoader", yaml.BaseLoader
)  # libyaml reads a board file 20 times faster than pure Python
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})|0x[0-9a-fA-F]{1,16}")  # at most 64 bits; longer ones stay text
_REAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})(\.[0-9]{1,32}([eE][-+]?[0-9]{1,2})?|[eE][-+]?[0-9]{1,2})")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
_NOT_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def load_yaml(path: str | Path) -> Section:
    """The mapping in one YAML file; ConfigError names file, line and what to write instead."""
    return parse_yaml(_read(path), str(path))


def load_key(path: str | Path, key: str) -> Any:
    """The value of one top-level key, None without it. Reading stops behind it, so what follows is not checked."""
    value = _build(_read(path), str(path), until=key)
    return value.get(key) if isinstance(value, Section) else None


def parse_yaml(data: bytes | str, file: str) -> Section:
    """The mapping in YAML text; `file` is the name used in error places."""
    value = _build(data, file)
    if not isinstance(value, Section):
        what = _NOT_A_MAPPING.get(type(value), "one value")
        raise ConfigError("the file must hold one mapping", where=f"{file}:1", found=what)
    return value


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError("the file cannot be read", where=str(path), found=error.strerror) from error


def _build(data: bytes | str, file: str, until: str | None = None) -> Any:
    if len(data) > limits.YAML_MAX_BYTES:
        allowed = f"{limits.YAML_MAX_BYTES} bytes"
        raise ConfigError("the file is too large", where=file, found=len(data), allowed=allowed)
    try:
        events = (event for event in yaml.parse(data, Loader=_LOADER) if not isinstance(event, _ENVELOPE))
        return _Builder(file, events, until).document()
    except yaml.MarkedYAMLError as error:
        marks: list[Any] = [mark for mark in (error.problem_mark, error.context_mark) if mark is not None]
        place = f"{file}:{marks[0].line + 1}" if marks else file
        raise ConfigError(f"this is not YAML: {error.problem or error.context}", where=place) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError("this is not YAML text in UTF-8", where=file, found=str(error).splitlines()[0]) from error


_NOT_A_MAPPING = {Items: "a list", type(None): "nothing"}
_ENVELOPE = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)


class _Builder:
    """Turns parser events into values; kept apart from the parser so that depth, aliases and tags are refused early."""

    def __init__(self, file: str, events: Iterator[Any], until: str | None) -> None:
        self.file, self.events, self.until = file, events, until

    def document(self) -> Any:
        first = next(self.events, None)
        value = None if first is None else self.value(first, 0)
        if self.until is None and (extra := next(self.events, None)) is not None:
            raise self._error(extra, "the file holds a second document", allowed="one")
        return value

    def value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self._error(event, "anchors and aliases are not read", remedy="write the value out")
        if event.tag is not None:
            raise self._error(event, "tags are not read", found=event.tag, remedy="remove it")
        if depth > limits.YAML_MAX_DEPTH:
            raise self._error(event, "nested too deep", allowed=f"{limits.YAML_MAX_DEPTH} levels")
        if isinstance(event, yaml.MappingStartEvent):
            return self._section(event, depth)
        return self._items(event, depth) if isinstance(event, yaml.SequenceStartEvent) else self._scalar(event)

    def _section(self, start: Any, depth: int) -> Section:
        section = Section(self.file, start.start_mark.line + 1)
        for key in iter(lambda: next(self.events), None):
            if isinstance(key, yaml.MappingEndEvent):
                return section
            name = self._key(key, section)
            section.lines[name] = key.start_mark.line + 1
            section[name] = self.value(next(self.events), depth + 1)
            if depth == 0 and name == self.until:
                return section
        raise AssertionError("the parser always ends a mapping")

    def _key(self, event: Any, section: Section) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._error(event, "a key must be one word")
        name = str(event.value)
        if name == "<<":
            raise self._error(event, "merge keys are not read", remedy="write the keys out")
        if name in section:
            raise self._error(event, f"key '{name}' is given twice", found=f"the first at line {section.lines[name]}")
        return name

    def _items(self, start: Any, depth: int) -> Items:
        items = Items(self.file, start.start_mark.line + 1)
        for event in self.events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.lines.append(event.start_mark.line + 1)
            items.append(self.value(event, depth + 1))
        return items

    def _scalar(self, event: Any) -> Any:
        text = str(event.value)
        if event.style:  # quoted and block scalars are always text
            return text
        if text.lower() in _NOT_BOOLEANS:
            meant = _NOT_BOOLEANS[text.lower()]
            remedy = f'write {meant} if a boolean is meant, or "{text}" in quotes if text is meant'
            raise self._error(
                event, f"unquoted '{text}' is a boolean to some YAML readers and text to others", remedy=remedy
            )
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text, 0)
        return float(text) if _REAL.fullmatch(text) else text

    def _error(self, event: Any, what: str, **parts: Any) -> ConfigError:
        return ConfigError(what, where=f"{self.file}:{event.start_mark.line + 1}", **parts)
