# SPDX-License-Identifier: Apache-2.0
"""dpfedge: one signed file holds a model pipeline; this runtime binds it to the board and links its stages without copies."""

from __future__ import annotations

__version__ = "0.1.0"
