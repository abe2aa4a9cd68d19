# SPDX-License-Identifier: Apache-2.0
"""Which graphs of a model are loaded."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ModelError
from dpfedge.stage.sizes import load_sizes


class _Model:
    name = "m"

    def __init__(self, *graphs: str) -> None:
        self.graphs = graphs

    def load(self, name: str, budget: Budget) -> Any:
        return name


@pytest.mark.parametrize(
    ("graphs", "loaded"),
    [
        (("other", "read@w=64", "read"), (["read"], True)),
        (("other", "read@w=64", "read@w=128"), (["read@w=64", "read@w=128"], False)),
    ],
)
def test_load__one_of_any_size_or_every_bucket(graphs: tuple[str, ...], loaded: Any) -> None:
    """Buckets are for backends that have nothing else."""
    assert load_sizes(_Model(*graphs), "read", Budget(), "text reader") == loaded


def test_load__of_another_model() -> None:
    """It says what there is."""
    with pytest.raises(ModelError, match="model m: no graph of a text reader; found detect, reader; allowed read"):
        load_sizes(_Model("detect", "reader"), "read", Budget(), "text reader")
