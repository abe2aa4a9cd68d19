# SPDX-License-Identifier: Apache-2.0
"""Stages: domain logic around executables, and what to write a stage of one's own with."""

from __future__ import annotations

from dpfedge.stage.api import Kind, Message, RequestIO, Steps, Wait
from dpfedge.stage.each import Each
from dpfedge.stage.ports import Dim, Port, Ports
from dpfedge.stage.sets import Sets

__all__ = ["Dim", "Each", "Kind", "Message", "Port", "Ports", "RequestIO", "Sets", "Steps", "Wait"]
