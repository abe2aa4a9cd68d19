# SPDX-License-Identifier: Apache-2.0
"""Stages: domain logic around executables, and what to write a stage of one's own with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.stage.api import Kind, Message, RequestIO, Steps, Wait
    from dpfedge.stage.each import Each
    from dpfedge.stage.ports import Dim, Port, Ports
    from dpfedge.stage.sets import Sets

__all__ = ["Dim", "Each", "Kind", "Message", "Port", "Ports", "RequestIO", "Sets", "Steps", "Wait"]

_HOMES = {
    **dict.fromkeys(("Kind", "Message", "RequestIO", "Steps", "Wait"), "api"),
    **dict.fromkeys(("Dim", "Port", "Ports"), "ports"),
    "Each": "each",
    "Sets": "sets",
}


def __getattr__(name: str) -> Any:
    # a stage process imports what its stage is written with, and every start the ports alone
    if name in _HOMES:
        return getattr(importlib.import_module(f"dpfedge.stage.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
