# SPDX-License-Identifier: Apache-2.0
"""The `.dpfbin` file: `open_package` reads one, `PackageWriter` and `WeightPool` write one; see FORMAT.md."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.package.expression import Expression
    from dpfedge.package.manifest import Graph, Licence, Manifest, Model, Section, Target, TargetModel
    from dpfedge.package.reader import Package
    from dpfedge.package.verify import open_package
    from dpfedge.package.weights import WeightPool
    from dpfedge.package.writer import PackageWriter

__all__ = [
    "Expression", "Graph", "Licence", "Manifest", "Model", "Package", "PackageWriter", "Section", "Target",
    "TargetModel", "WeightPool", "open_package",
]  # fmt: skip

_HOMES = {
    "Expression": "expression", "Package": "reader", "PackageWriter": "writer", "WeightPool": "weights",
    "open_package": "verify",
    **dict.fromkeys(("Graph", "Licence", "Manifest", "Model", "Section", "Target", "TargetModel"), "manifest"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # who reads a package does not pay for what writes one
    if name in _HOMES:
        return getattr(importlib.import_module(f"dpfedge.package.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
