# SPDX-License-Identifier: Apache-2.0
"""Installed packages: two slots for each name, switched at once, safe against power loss; see STORE.md."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.store.located import Located, locate
    from dpfedge.store.record import Installed
    from dpfedge.store.store import Entry, Installation, Store

__all__ = ["Entry", "Installation", "Installed", "Located", "Store", "locate"]

_HOMES = {
    "Entry": "store", "Installation": "store", "Installed": "record", "Located": "located", "Store": "store",
    "locate": "located",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # who opens a package needs to find it only; what installs one copies, locks and judges
    if name in _HOMES:
        return getattr(importlib.import_module(f"dpfedge.store.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
