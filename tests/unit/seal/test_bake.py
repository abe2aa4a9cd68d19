# SPDX-License-Identifier: Apache-2.0
"""Which openings a pipeline has; baking itself is tested in test_baking and test_baked."""

from __future__ import annotations

import pytest

from dpfedge.seal.bake import openings


@pytest.mark.parametrize("pipeline", [{}, {"stages": {}}, {"stages": {"llm": {"system": "x"}}}])
def test_openings__none(pipeline: dict[str, object]) -> None:
    """A pipeline without a language model has nothing to bake."""
    assert openings(pipeline) == {}


def test_openings__settings_without_the_model() -> None:
    """The stage's settings stay as they are."""
    stages = {"llm": {"model": "small", "system": "Be brief."}, "voice": {"model": "v"}}

    assert openings({"stages": stages}) == {"small": {"system": "Be brief."}}
