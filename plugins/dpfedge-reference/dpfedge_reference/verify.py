# SPDX-License-Identifier: Apache-2.0
"""What proving the reference needs to know: its test and `dpfedge doctor --backend reference --verify` read it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["UNSUPPORTED"]

UNSUPPORTED: Mapping[str, str] = {"cancel": "NumPy's calls cannot be ended"}
"""Tests of the suite → why it will never pass them."""
