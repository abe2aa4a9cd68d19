# SPDX-License-Identifier: Apache-2.0
"""A recipe file (`voice.yaml`) in, checked records out: which models, from where, and the pipeline around them.

It fetches and imports nothing. What a stage may be told is checked by whoever knows the stages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from dpfedge.compiler.families import FAMILIES
from dpfedge.compiler.formats import FORMATS
from dpfedge.config import check, load_yaml, nearest, plain
from dpfedge.errors import ConfigError
from dpfedge.limits import TENSOR_MAX_DIM
from dpfedge.records import dataclass

__all__ = ["ModelSource", "Recipe", "load_recipe"]

_NAME: Mapping[str, Any] = {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$", "examples": ["voice"]}
_MODEL = {
    "type": "object",
    "additionalProperties": False,
    "required": ["family", "source"],
    "properties": {
        "family": {"type": "string", "enum": sorted(FAMILIES)},
        "source": {"type": "string", "pattern": r"^(catalogue|folder):[^\0\n]+$", "examples": ["catalogue:silero-vad"]},
        "licence": {"type": "string", "minLength": 1},
        "files": {"type": "object", "additionalProperties": {"type": "string"}},
        "mode": {"type": "string", "enum": ["exact", "fast"]},
        "context": {"type": "integer", "minimum": 1},
        "weights": {"type": "string", "enum": list(FORMATS)},
        "max_loss": {"type": "number", "minimum": 0},
        "buckets": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "integer", "minimum": 1, "maximum": TENSOR_MAX_DIM},
            },
        },
    },
}
_OPTIONS = ("mode", "context", "weights", "max_loss", "buckets")
"""Keys of a model that only some families have."""
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "version", "models"],
    "properties": {
        "name": _NAME,
        "version": _NAME,
        "models": {"type": "object", "minProperties": 1, "additionalProperties": _MODEL},
        "pipeline": {
            "type": "object",
            "required": ["stages"],
            "properties": {
                "stages": {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {"type": "object", "properties": {"model": {"type": "string"}}},
                }
            },
        },
    },
}
"""JSON Schema of a recipe, without the stages' own settings."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One model of a recipe: `kind` is `catalogue` or `folder`, `place` its name or path."""

    name: str
    family: str
    kind: str
    place: str
    where: str
    licence: str | None
    files: Mapping[str, str]
    mode: str | None
    context: int | None
    weights: str = "keep"
    max_loss: float | None = None
    """Most that a changed form of the weights may cost: growth of perplexity, or relative error of an output."""
    buckets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Dimension → sizes that graphs of fixed shape are made for."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A checked recipe."""

    path: Path
    name: str
    version: str
    models: tuple[ModelSource, ...]
    pipeline: Mapping[str, Any]
    section: Mapping[str, Any]
    """The same with line numbers, for whoever checks it; empty when the recipe has none."""


def load_recipe(path: Path) -> Recipe:
    """Read and check `path`; ConfigError names file, line and the nearest known word."""
    data = load_yaml(path)
    check(data, SCHEMA, path)
    models = tuple(_model(name, data["models"]) for name in data["models"])
    names = {model.name for model in models}
    pipeline = data.get("pipeline", {})
    for stage, section in pipeline.get("stages", {}).items():
        if "model" in section and section["model"] not in names:
            where = section.where("model") if hasattr(section, "where") else str(path)
            raise ConfigError(
                f"stage {stage} names an unknown model",
                where=where,
                found=section["model"],
                allowed=", ".join(sorted(names)),
                remedy=nearest(str(section["model"]), names),
            )
    return Recipe(path, data["name"], data["version"], models, plain(pipeline) or {"stages": {}}, pipeline)


def _model(name: str, models: Any) -> ModelSource:
    data, where = models[name], models.where(name)
    kind, place = data["source"].split(":", 1)
    family = FAMILIES[data["family"]]
    files = data.get("files", {})
    for key in [key for key in _OPTIONS if key in data and key not in family.options]:
        raise ConfigError(
            f"family {data['family']} has no option {key}",
            where=data.where(key),
            allowed=", ".join(family.options) or "none",
        )
    if "max_loss" in data and data.get("weights", "keep") == "keep":
        raise ConfigError(
            "max_loss without a changed format", where=data.where("max_loss"), allowed=", ".join(FORMATS[1:]),
            remedy="add weights:",
        )  # fmt: skip
    roles = {**family.files, **family.other_files}
    for role in [role for role in files if role not in roles and not family.open]:
        raise ConfigError(
            f"family {data['family']} has no file {role}", where=files.where(role), allowed=", ".join(roles)
        )
    for role in [role for role in files if not re.fullmatch(_NAME["pattern"], role)]:
        raise ConfigError("bad name of a graph", where=files.where(role), found=role, allowed=_NAME["pattern"])
    if kind == "folder" and "licence" not in data:
        raise ConfigError(
            "a model from a folder needs its licence", where=where, remedy="add licence: with an SPDX expression"
        )
    return ModelSource(
        name,
        data["family"],
        kind,
        place,
        where,
        data.get("licence"),
        dict(files),
        data.get("mode"),
        data.get("context"),
        data.get("weights", "keep"),
        data.get("max_loss"),
        plain(data.get("buckets", {})),
    )
