# SPDX-License-Identifier: Apache-2.0
"""Installed packages: two slots for each name, switched at once, safe against power loss; see STORE.md."""

from __future__ import annotations

from dpfedge.store.locate import Located, locate
from dpfedge.store.record import Installed
from dpfedge.store.store import Entry, Installation, Store

__all__ = ["Entry", "Installation", "Installed", "Located", "Store", "locate"]
