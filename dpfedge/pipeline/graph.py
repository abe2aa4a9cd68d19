# SPDX-License-Identifier: Apache-2.0
"""The pipeline's graph: a package's `pipeline` section in, stages, links and routes out.

It starts no process and maps no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dpfedge.errors import ConfigError
from dpfedge.limits import KIB, LINK_TEXT_SLOTS, PROMPT_MAX_BYTES, UTTERANCE_MAX_SAMPLES, VOICE_CHUNK_MAX_SAMPLES
from dpfedge.link import LinkSpec
from dpfedge.stage.api import Mode

__all__ = ["ROUTES", "Graph", "StageNode"]

SOURCE, SINK = "source", "sink"
ROUTES: Mapping[Mode, tuple[str, ...]] = {
    Mode.TRANSCRIBE: ("decoder", "encoder"),
    Mode.CHAT: ("llm",),
    Mode.SPEAK: ("voice",),
    Mode.CONVERSE: ("decoder", "encoder", "llm", "voice"),
}
_CHAIN = ("decoder", "encoder", "llm", "voice")
# (slots, bytes per slot); audio slots hold the longest utterance or chunk so that it never has to be put together again
_SIZES: Mapping[str, tuple[int, int]] = {
    "source.decoder": (32, 64 * KIB),
    "source.encoder": (16, 4 * KIB),
    "source.llm": (8, PROMPT_MAX_BYTES),
    "source.voice": (16, 32 * KIB),
    "decoder.encoder": (12, 4 * UTTERANCE_MAX_SAMPLES),
    "encoder.llm": (LINK_TEXT_SLOTS, 16 * KIB),
    "llm.voice": (LINK_TEXT_SLOTS, 8 * KIB),
    "decoder.sink": (LINK_TEXT_SLOTS, 4 * KIB),
    "encoder.sink": (LINK_TEXT_SLOTS, 16 * KIB),
    "llm.sink": (4 * LINK_TEXT_SLOTS, 8 * KIB),
    "voice.sink": (24, 2 * VOICE_CHUNK_MAX_SAMPLES),
}


@dataclass(frozen=True, slots=True)
class StageNode:
    """One stage: its name, the model it owns and its configuration."""

    name: str
    model: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Graph:
    """Stages in chain order, and the links between them."""

    stages: tuple[StageNode, ...]

    @classmethod
    def from_manifest(cls, pipeline: Mapping[str, Any], where: str) -> Graph:
        """The graph a package describes; ConfigError names what is wrong."""
        stages = pipeline.get("stages")
        if not isinstance(stages, Mapping) or not stages:
            raise ConfigError("the package has no pipeline", where=where, allowed="pipeline.stages with a stage in it")
        unknown = sorted(set(stages) - set(_CHAIN))
        if unknown:
            raise ConfigError("unknown stage", where=f"{where}: pipeline.stages", found=unknown[0], allowed=_CHAIN)
        return cls(tuple(_node(name, stages[name], where) for name in _CHAIN if name in stages))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages, first to last."""
        return tuple(node.name for node in self.stages)

    def links(self) -> tuple[LinkSpec, ...]:
        """Every link: source to each stage, each stage to the next one of the chain, each stage to the sink."""
        names = self.names
        pairs = [(SOURCE, name) for name in names]
        pairs += [(a, b) for a, b in pairwise(_CHAIN) if a in names and b in names]
        pairs += [(name, SINK) for name in names]
        return tuple(_link(producer, consumer) for producer, consumer in pairs)

    def route(self, mode: Mode) -> tuple[str, ...]:
        """The stages a request of this mode passes; ConfigError if the pipeline lacks one."""
        missing = [name for name in ROUTES[mode] if name not in self.names]
        if missing:
            raise ConfigError(
                f"this pipeline cannot {mode.name.lower()}", found=f"no {missing[0]} stage", allowed=self.names
            )
        return ROUTES[mode]


def _node(name: str, data: Mapping[str, Any], where: str) -> StageNode:
    config = dict(data)
    model = config.pop("model", None)
    if not isinstance(model, str):
        raise ConfigError("the stage names no model", where=f"{where}: pipeline.stages.{name}", allowed="model: NAME")
    return StageNode(name, model, config)


def _link(producer: str, consumer: str) -> LinkSpec:
    slots, slot_bytes = _SIZES[f"{producer}.{consumer}"]
    return LinkSpec(f"{producer}.{consumer}", producer, consumer, slots, slot_bytes, "fail")
