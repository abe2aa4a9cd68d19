# SPDX-License-Identifier: Apache-2.0
"""Data and a JSON Schema go in; nothing, or a ConfigError with file, line and the nearest known word, comes out.

It changes no data, fills in no defaults and checks only the keywords below: a schema that uses others is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfedge.config.places import Items, Section
from dpfedge.config.units import FORMATS
from dpfedge.errors import ConfigError

__all__ = ["check", "nearest"]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (Mapping,), "array": (list, tuple), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
_ANNOTATIONS = frozenset(("$schema", "$id", "$defs", "title", "description", "examples", "default", "$comment"))
_Check = Callable[[Any, Any, Mapping[str, Any], "_Place"], None]


class _Place:
    """Where the check stands: a chain of (holder, key) up to the root, turned into text only for an error."""

    __slots__ = ("_source", "holder", "key", "parent", "root")

    def __init__(
        self, root: Mapping[str, Any], source: str, parent: _Place | None = None, holder: Any = None, key: Any = None
    ) -> None:
        self.root, self._source, self.parent, self.holder, self.key = root, source, parent, holder, key

    def into(self, holder: Any, key: Any) -> _Place:
        return _Place(self.root, self._source, self, holder, key)

    @property
    def at(self) -> str:
        if isinstance(self.holder, Section | Items):
            return self.holder.where(self.key)
        return self.parent.at if self.parent is not None else self._source

    @property
    def path(self) -> str:
        above = self.parent.path if self.parent is not None else ""
        if self.key is None:
            return above
        if isinstance(self.key, int):
            return f"{above}[{self.key}]"
        return f"{above}.{self.key}" if above else str(self.key)

    def error(self, what: str, **parts: Any) -> ConfigError:
        path = self.path
        return ConfigError(f"{path}: {what}" if path else what, where=self.at, **parts)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """`did you mean …?` for the known word closest to `word`, or None when none is close."""
    found = _close(word, known)
    return f"did you mean {found[0]}?" if found else None


def _close(word: str, known: Iterable[str]) -> list[str]:
    import difflib  # for messages alone

    return difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)


def check(data: object, schema: Mapping[str, Any], path: str | Path) -> None:
    """Raise ConfigError for the first place where `data` breaks the JSON Schema.

    Places come from `data` when `load_yaml` made it; `path` names the source of any other mapping.
    """
    where = data.where() if isinstance(data, Section | Items) else str(path)
    _check(data, schema, _Place(schema, where))


def _check(data: Any, schema: Mapping[str, Any], place: _Place) -> None:
    if unknown := schema.keys() - _KEYWORDS.keys() - _ANNOTATIONS:
        raise ConfigError(
            f"the schema uses '{min(unknown)}', which is not checked", where=place.at, allowed=", ".join(_KEYWORDS)
        )
    for keyword, checker in _KEYWORDS.items():
        if keyword in schema:
            checker(data, schema[keyword], schema, place)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, types in _TYPES.items() if isinstance(value, types)), type(value).__name__)


def _check_type(data: Any, wanted: Any, schema: Mapping[str, Any], place: _Place) -> None:
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    found = _kind(data)
    if found in names or (found == "integer" and "number" in names):
        return
    if "format" in schema and found in ("integer", "number"):
        _check_format(data, schema["format"], schema, place)
    shown = found if isinstance(data, Mapping | list) else f"{found} {data!r}"
    raise place.error("wrong type", found=shown, allowed=" or ".join(names))


def _check_format(data: Any, name: Any, schema: Mapping[str, Any], place: _Place) -> None:
    if name not in FORMATS:
        raise ConfigError(
            f"the schema uses format '{name}', which is not checked", where=place.at, allowed=", ".join(FORMATS)
        )
    if not isinstance(data, str | int | float) or isinstance(data, bool):
        return
    try:
        FORMATS[name](data)
    except ConfigError as error:
        raise place.error(error.what, found=error.found, allowed=error.allowed, remedy=error.remedy) from None


def _check_enum(data: Any, allowed: Any, schema: Mapping[str, Any], place: _Place) -> None:
    if not any(data == item and isinstance(data, bool) == isinstance(item, bool) for item in allowed):
        words = [str(item) for item in allowed]
        raise place.error("unknown value", found=repr(data), allowed=", ".join(words), remedy=nearest(str(data), words))


def _check_pattern(data: Any, pattern: Any, schema: Mapping[str, Any], place: _Place) -> None:
    if isinstance(data, str) and not re.search(pattern, data):
        example = schema.get("examples", [None])[0]
        raise place.error(
            "wrong form", found=repr(data), allowed=pattern, remedy=f"for example {example}" if example else None
        )


def _check_bounds(keyword: str) -> _Check:
    def _bound(data: Any, bound: Any, schema: Mapping[str, Any], place: _Place) -> None:
        if keyword.endswith("imum"):
            size, unit = data if _kind(data) in ("integer", "number") else None, ""
        elif keyword.endswith("Length"):
            size, unit = len(data) if isinstance(data, str) else None, " characters"
        else:
            size, unit = len(data) if isinstance(data, Mapping | list) else None, " entries"
        least = keyword.startswith("min")
        if size is not None and (size < bound if least else size > bound):
            raise place.error(
                "out of range", found=f"{size}{unit}", allowed=f"at {'least' if least else 'most'} {bound}{unit}"
            )

    return _bound


def _check_required(data: Any, keys: Any, schema: Mapping[str, Any], place: _Place) -> None:
    for key in keys if isinstance(data, Mapping) else ():
        if key not in data:
            strange = [word for word in data if word not in schema.get("properties", {})]
            close = _close(key, strange)
            if close and isinstance(data, Section):
                raise place.into(data, close[0]).error(
                    f"unknown key; '{key}' is missing", remedy=f"did you mean {key}?"
                )
            remedy = f"'{close[0]}' looks like it" if close else f"add {key}:"
            raise place.error(f"key '{key}' is missing", remedy=remedy)


def _check_properties(data: Any, properties: Any, schema: Mapping[str, Any], place: _Place) -> None:
    if isinstance(data, Mapping):
        for key in data:
            if key in properties:
                _check(data[key], properties[key], place.into(data, key))


def _check_additional(data: Any, rule: Any, schema: Mapping[str, Any], place: _Place) -> None:
    known = schema.get("properties", {})
    for key in data if isinstance(data, Mapping) else ():
        if key in known:
            continue
        if rule is False:
            inside = f" in {place.path}" if place.path else ""
            where = place.into(data, key).at
            raise ConfigError(
                f"unknown key '{key}'{inside}", where=where, allowed=", ".join(known), remedy=nearest(str(key), known)
            )
        if isinstance(rule, Mapping):
            _check(data[key], rule, place.into(data, key))


def _check_names(data: Any, rule: Any, schema: Mapping[str, Any], place: _Place) -> None:
    for key in data if isinstance(data, Mapping) else ():
        _check(key, rule, place.into(data, key))


def _check_items(data: Any, rule: Any, schema: Mapping[str, Any], place: _Place) -> None:
    for index, item in enumerate(data if isinstance(data, Sequence) and not isinstance(data, str) else ()):
        _check(item, rule, place.into(data, index))


def _check_any(data: Any, options: Any, schema: Mapping[str, Any], place: _Place) -> None:
    # Only alternatives of the right type can be meant, and the last of them gives the error.
    fitting = [option for option in options if _kind(data) in _types_of(option, place)]
    if not fitting:
        _check_type(data, [name for option in options for name in _types_of(option, place)], schema, place)
    if not any(_fits(data, option, place) for option in fitting[:-1]):
        _check(data, fitting[-1], place)


def _fits(data: Any, schema: Mapping[str, Any], place: _Place) -> bool:
    try:
        _check(data, schema, place)
    except ConfigError:
        return False
    return True


def _types_of(schema: Mapping[str, Any], place: _Place) -> tuple[str, ...]:
    wanted = _resolve(schema["$ref"], place)["type"] if "$ref" in schema else schema["type"]
    return (wanted,) if isinstance(wanted, str) else tuple(wanted)


def _check_ref(data: Any, target: Any, schema: Mapping[str, Any], place: _Place) -> None:
    _check(data, _resolve(target, place), place)


def _resolve(target: str, place: _Place) -> Mapping[str, Any]:
    node: Any = place.root
    for step in target.removeprefix("#/").split("/"):
        node = node[step]
    return node  # type: ignore[no-any-return]


# Checked in this order whatever the order in the schema, so that the first error is the cause, not a consequence.
_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties")
_KEYWORDS: Mapping[str, _Check] = {
    "type": _check_type, "enum": _check_enum, "pattern": _check_pattern, "format": _check_format,
    **{name: _check_bounds(name) for name in _BOUNDS},
    "propertyNames": _check_names, "additionalProperties": _check_additional, "required": _check_required,
    "properties": _check_properties, "items": _check_items, "anyOf": _check_any, "$ref": _check_ref,
}  # fmt: skip
