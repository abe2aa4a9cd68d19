# SPDX-License-Identifier: Apache-2.0
"""Builds of onnxruntime by the names of their distributions."""

from __future__ import annotations

from importlib.metadata import version

from dpfedge_cpu.builds import installed_build


def test_installed_build__is_the_first_that_is_there() -> None:
    """With its version; NumPy stands for one here."""
    assert installed_build(["onnxruntime-of-nobody", "numpy", "onnx"]) == f"numpy {version('numpy')}"
    assert installed_build(["onnxruntime-of-nobody"]) == "not installed"
