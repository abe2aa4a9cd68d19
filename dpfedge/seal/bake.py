# SPDX-License-Identifier: Apache-2.0
"""Baking: a bound package and its pipeline in, the key/value memory of each language model's opening out.

The opening runs once, here, on one thread and in the chunks the stage will use, by the stage's own code: so the bytes
are those the stage would compute itself. It stores nothing; the compiler and `dpfedge seal` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.backend.api import Budget
from dpfedge.binding import Bound
from dpfedge.package.prefix import Baked

__all__ = ["bake_prefixes", "openings"]


def openings(pipeline: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Model → settings of each stage of `pipeline` that has an opening to bake."""
    stages = pipeline.get("stages", {})
    section = dict(stages["llm"]) if "llm" in stages else {}
    model = section.pop("model", None)
    return {model: section} if isinstance(model, str) else {}


def bake_prefixes(bound: Bound, pipeline: Mapping[str, Any]) -> dict[str, Baked]:
    """Model → its prefix, computed on the bound device; a model without an opening has none."""
    from dpfedge.stage.llm import LlmStage  # with the libraries of a stage, which a package without one does not need

    baked: dict[str, Baked] = {}
    for model, settings in openings(pipeline).items():
        if model in bound.models:
            stage = LlmStage(bound.model(model), settings, Budget(threads=1))
            if (prefix := stage.bake()) is not None:
                baked[model] = prefix
    return baked
