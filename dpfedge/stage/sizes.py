# SPDX-License-Identifier: Apache-2.0
"""A model's graph for every size, or its graphs of fixed shape: which there are in, them loaded out."""

from __future__ import annotations

from typing import Any

from dpfedge.backend.api import Budget, Executable
from dpfedge.errors import ModelError

__all__ = ["load_sizes"]


def load_sizes(model: Any, graph: str, budget: Budget, what: str) -> tuple[list[Executable], bool]:
    """(what was loaded, whether it is one graph of any size); ModelError when the model is no `what`.

    `graph` is taken where there is one, else every bucket of it (`graph@…`).
    """
    names = [name for name in model.graphs if name == graph or name.startswith(f"{graph}@")]
    if not names:
        found = ", ".join(model.graphs)
        raise ModelError(f"no graph of a {what}", where=f"model {model.name}", found=found, allowed=graph)
    wanted = [graph] if graph in names else names
    return [model.load(name, budget) for name in wanted], wanted == [graph]
