# SPDX-License-Identifier: Apache-2.0
"""The `.dpfbin` file: `open_package` reads one, `PackageWriter` and `WeightPool` write one; see FORMAT.md."""

from __future__ import annotations

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
