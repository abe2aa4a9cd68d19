# SPDX-License-Identifier: Apache-2.0
"""How a pipeline is written down: the schema of the `pipeline` section, in a recipe, a package or a file of its own.

What fits what is `graph.py`'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfedge.config import check
from dpfedge.errors import ConfigError
from dpfedge.pipeline.ladder_schema import SCHEMA as LADDER_SCHEMA
from dpfedge.stage.kinds import StageKind, find_kind
from dpfedge.stage.sync_schema import SCHEMA as SYNC_SCHEMA

__all__ = ["FILE_SCHEMA", "NODE_KEYS", "SCHEMA", "check_pipeline"]

_NAME = {"type": "string", "pattern": r"^[a-z][a-z0-9_-]{0,23}$", "examples": ["camera"]}
_TAKEN = ("source", "sink", "runtime")
"""What the ends of links that are the caller's are called, and who an error is of that is no stage's."""
_PORT = {"type": "string", "pattern": r"^[a-z][a-z0-9_-]*\.[a-z][a-z0-9_-]*$", "examples": ["camera.frames"]}
_DURATION = {"type": "string", "format": "duration", "examples": ["150ms"]}

NODE_KEYS: Mapping[str, Any] = {
    "kind": {"type": "string", "minLength": 1, "examples": ["camera"]},
    "model": {"type": "string", "minLength": 1},
    "sync": SYNC_SCHEMA,
}
"""What every stage may have beside its kind's own settings."""

_LINK = {
    "type": "object",
    "additionalProperties": False,
    "required": ["from", "to"],
    "properties": {
        "from": _PORT,
        "to": {"anyOf": [_PORT, {"type": "array", "minItems": 1, "maxItems": 6, "items": _PORT}]},
        "policy": {"type": "string", "enum": ["block", "fail", "newest"]},
        "slots": {"type": "integer", "minimum": 2, "maximum": 4096},
        "delay": {"type": "boolean"},
    },
}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["stages"],
    "properties": {
        "stages": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": _NAME,
            "additionalProperties": {"type": "object", "properties": NODE_KEYS},
        },
        "links": {"type": "array", "maxItems": 256, "items": _LINK},
        "budgets": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "request": _DURATION,
                "start": _DURATION,
                "hang": _DURATION,
                "memory": {"type": "string", "format": "size", "examples": ["64MiB"]},
                "stages": {"type": "object", "additionalProperties": _DURATION},
            },
        },
        "ladder": LADDER_SCHEMA,
    },
}
"""JSON Schema of the section."""

FILE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "pipeline"],
    "properties": {
        "name": {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$"},
        "package": {"type": "string", "minLength": 1},
        "pipeline": SCHEMA,
    },
}
"""JSON Schema of a pipeline file: `package`, relative to it, holds the models its stages name."""


def check_pipeline(section: Mapping[str, Any], where: str, folder: Path | None = None) -> None:
    """Every key and setting, where a line can be named and not first when it is served; ConfigError names the place."""
    check(section, SCHEMA, where)
    stages = section["stages"]
    kinds = {}
    for name, stage in stages.items():
        lines = getattr(stages, "where", None)
        place = lines(name) if lines else f"{where}: pipeline.stages.{name}"
        if name in _TAKEN:
            raise ConfigError("a stage cannot be called that", where=place, found=name, allowed="any other name")
        kind = kinds[name] = find_kind(str(stage.get("kind", name)), where=place, folder=folder)
        schema = kind.schema() or {"type": "object"}
        known = {**schema.get("properties", {}), **NODE_KEYS}
        needed = [*schema.get("required", ()), *(["model"] if kind.needs_model else [])]
        check(stage, {**schema, "properties": known, "required": needed}, f"{where}: {name}")
    if "ladder" in section:
        from dpfedge.pipeline.ladder import Ladder
        from dpfedge.pipeline.rungs import check_settings

        written = {name: _Written(kind, stages[name]) for name, kind in kinds.items()}
        check_settings(Ladder.of(section["ladder"], where), written)


class _Written:
    """A stage of the section, for the ladder's check."""

    def __init__(self, kind: StageKind, stage: Mapping[str, Any]) -> None:
        self.kind, self.model = kind, str(stage.get("model", ""))
        self.config = {key: value for key, value in stage.items() if key not in NODE_KEYS}
