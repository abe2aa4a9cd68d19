# SPDX-License-Identifier: Apache-2.0
"""The schema of ladders; what breaks it is shown in test_ladder.py, with the errors."""

from __future__ import annotations

from dpfedge.config import check
from dpfedge.pipeline.ladder_schema import BOUNDS, SCHEMA


def test_schema__takes_each_condition_as_it_is_shown() -> None:
    """Every example of a bound is one."""
    for name, bound in BOUNDS.items():
        [example] = bound["examples"]
        step = {"when": {name: example}, "until": {name: example}, "set": {"llm": {"model": "small"}}}
        check([{**step, "name": "warm", "hold": "10s", "optional": True}], SCHEMA, "here")
