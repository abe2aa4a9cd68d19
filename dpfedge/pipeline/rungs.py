# SPDX-License-Identifier: Apache-2.0
"""A ladder against the pipeline it belongs to: the stages, models and settings of its steps in, or an error out.

What a step sets, a stage must be able to do without a new start, except for its model, which is swapped between two
requests. A model that takes its place must have the very same ports, and the rate of what the caller hears.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from dpfedge.config import check, nearest
from dpfedge.errors import ConfigError
from dpfedge.pipeline.ladder import Ladder, Step, merge
from dpfedge.stage.kinds import BUILT_IN, StageKind
from dpfedge.stage.ports import Ports

__all__ = ["MODEL", "Node", "Written", "check_rungs", "check_settings", "over"]

MODEL = "model"
"""The key of a stage in `set` that is no setting."""


class Written(Protocol):
    """A stage as it is written down."""

    @property
    def kind(self) -> StageKind:
        """What it is."""

    @property
    def model(self) -> str:
        """The model it owns; empty: none."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Its settings."""


class Node(Written, Protocol):
    """What matters of a `graph.StageNode`."""

    @property
    def ports(self) -> Ports:
        """Its ports."""


def over(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What wins over a stage's own settings, key by key: maps inside are put together with its own."""
    merged = merge(config, settings)
    return {name: merged[name] for name in settings if name != MODEL}


def check_settings(ladder: Ladder, stages: Mapping[str, Written]) -> None:
    """ConfigError for the first step that these stages cannot follow, as far as that can be told without models."""
    ladder.check_stages(stages)
    for step, name, settings in _in_force(ladder):
        where, stage = _where(step, name), stages[name]
        if MODEL in settings and not stage.model:
            raise ConfigError("this stage has no model that could be another", where=where, found=settings[MODEL])
        live = _live(stage.kind)
        for key in settings:
            if live is not None and key not in (*live, MODEL):
                raise ConfigError(
                    "this setting cannot change while the stage runs", where=where, found=key,
                    allowed=", ".join((*live, MODEL)), remedy=nearest(key, live),
                )  # fmt: skip
        schema = stage.kind.schema()
        if schema is not None:
            check({**stage.config, **over(stage.config, settings)}, schema, where)


def check_rungs(ladder: Ladder, nodes: Mapping[str, Node], models: Mapping[str, Mapping[str, Any]]) -> None:
    """As `check_settings`, and every model is there and fits. `models`: name → config of those there are."""
    check_settings(ladder, nodes)
    for step, name, settings in _in_force(ladder):
        if MODEL in settings:
            _check_model(_where(step, name), settings[MODEL], nodes[name], models)


def _in_force(ladder: Ladder) -> Iterator[tuple[Step, str, Mapping[str, Any]]]:
    """Each step with each stage it touches, and all that is set for that by then."""
    together: dict[str, dict[str, Any]] = {}
    for step in ladder.steps:
        for name, settings in step.settings.items():
            together[name] = merge(together.get(name, {}), settings)
            yield step, name, together[name]


def _where(step: Step, stage: str) -> str:
    return f"{step.where}: step {step.name}: {stage}"


def _check_model(where: str, model: str, node: Node, models: Mapping[str, Mapping[str, Any]]) -> None:
    if model not in models:
        allowed = ", ".join(models) or "the pipeline has no package"
        raise ConfigError("no such model", where=where, found=model, allowed=allowed, remedy=nearest(model, models))
    if node.kind.ports(node.config, models[model]) != node.ports:
        remedy = "take a model with the same rates and sizes"
        raise ConfigError(f"with model {model} the stage has other ports", where=where, remedy=remedy)
    rates = [models.get(name, {}).get("rate") for name in (model, node.model)]
    if rates[0] != rates[1]:
        raise ConfigError(f"model {model} has another rate", where=where, found=rates[0], allowed=rates[1])


def _live(kind: StageKind) -> Collection[str] | None:
    """Settings that may change while such a stage runs; None when only the stage itself can tell."""
    if kind.name in BUILT_IN:
        return getattr(importlib.import_module(f"{BUILT_IN[kind.name][0]}.config"), "LIVE", ())
    made = kind.load()
    return getattr(made, "LIVE", None) if hasattr(made, "adjust") else ()
