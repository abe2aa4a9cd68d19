# SPDX-License-Identifier: Apache-2.0
"""The schema of `sync`; what breaks it is shown in test_join.py, with the errors."""

from __future__ import annotations

from dpfedge.config import check
from dpfedge.stage.sync_schema import SCHEMA


def test_schema__takes_what_a_stage_may_say() -> None:
    """All of it, or the lead alone."""
    check({"lead": "frames", "policy": "nearest", "tolerance": "50ms", "depth": 4}, SCHEMA, "here")
    check({"lead": "frames"}, SCHEMA, "here")
