# SPDX-License-Identifier: Apache-2.0
"""What proving the template needs to know; its test and `dpfedge doctor --backend template --verify` read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["OPS", "UNSUPPORTED"]

OPS: Sequence[str] = ("Add/f*", "Sub/f*", "Mul/f*", "MatMul/f*", "MatMul-*", "Relu/*", "Tanh/*", "Exp/*")
"""Patterns of the operators it has; all others must raise Unsupported."""
UNSUPPORTED: Mapping[str, str] = {"cancel": "NumPy's calls cannot be ended", "cache": "it has no attention"}
"""Tests of the suite → why it will never pass them; they must raise Unsupported."""
