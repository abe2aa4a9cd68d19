# SPDX-License-Identifier: Apache-2.0
"""A stage's settings as a JSON Schema: the record of their defaults, and what bounds them, in. It checks nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

__all__ = ["schema_of"]

_TYPES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))
Bounds = tuple[float, float] | Mapping[str, Any]


def schema_of(defaults: Any, bounds: Mapping[str, Bounds]) -> dict[str, Any]:
    """The schema of a dataclass whose every field has a default; the types follow from these.

    `bounds`: field → (least, most), or other keywords; of a field whose default is None its `type`, too. A tuple of
    texts is an array of them.
    """
    properties = {name: _property(default, bounds.get(name, {})) for name, default in asdict(defaults).items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _property(default: Any, bounds: Bounds) -> dict[str, Any]:
    more = dict(bounds) if isinstance(bounds, Mapping) else {"minimum": bounds[0], "maximum": bounds[1]}
    if isinstance(default, tuple):
        return {"type": "array", "items": {"type": "string"}, "default": list(default), **more}
    if default is None:
        return {**more, "type": [more["type"], "null"], "default": None}
    return {"type": next(name for kind, name in _TYPES if isinstance(default, kind)), "default": default, **more}
