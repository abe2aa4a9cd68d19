# SPDX-License-Identifier: Apache-2.0
"""The template's lists are where `dpfedge doctor --verify` looks for them: a copy of it is proved as it stands."""

from __future__ import annotations

from dpfedge_template import TemplateBackend
from dpfedge_template.plan import OPERATORS
from dpfedge_template.verify import OPS, UNSUPPORTED

from dpfedge.doctor.verify import lists


def test_lists__are_found_by_the_doctor() -> None:
    """They are the suite's own, and name the operators of the plan."""
    assert lists(TemplateBackend()) == (OPS, UNSUPPORTED, {})
    assert {pattern.partition("/")[0].partition("-")[0] for pattern in OPS} == OPERATORS.keys()
