# SPDX-License-Identifier: Apache-2.0
"""Compile a recipe with the CPU plugin of this tree and print the package's SHA-256; for Pythons without dpfedge."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins" / "dpfedge-cpu")]

from dpfedge_cpu import CpuBackend  # noqa: E402

from dpfedge.backend.registry import Registry  # noqa: E402
from dpfedge.compiler.emit import compile_package  # noqa: E402
from dpfedge.compiler.recipe import load_recipe  # noqa: E402

if __name__ == "__main__":
    registry = Registry()
    registry.add(CpuBackend())
    recipe, out = (Path(argument) for argument in sys.argv[1:3])
    compile_package(load_recipe(recipe), out, boards=["host", "rk3588"], registry=registry)
    print(hashlib.sha256(out.read_bytes()).hexdigest())
