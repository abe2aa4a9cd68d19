# SPDX-License-Identifier: Apache-2.0
"""Routing: which instance serves a session, by a pure function over a published table; see ROUTING.md."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.routing.fingerprint import Fingerprint, Fingerprints, Privacy
    from dpfedge.routing.health import Health, MemoryPressure, Rule, Sample
    from dpfedge.routing.instances import Instance, read_instances, weigh
    from dpfedge.routing.key import encode, hash_key, mark_of, slot_of
    from dpfedge.routing.log import RouteLog
    from dpfedge.routing.publication import Published, Publisher
    from dpfedge.routing.replay import Replayed
    from dpfedge.routing.router import Change, Decision, Router
    from dpfedge.routing.sampling import Sampler, of_device
    from dpfedge.routing.table import Table

__all__ = [
    "Change",
    "Decision",
    "Fingerprint",
    "Fingerprints",
    "Health",
    "Instance",
    "MemoryPressure",
    "Privacy",
    "Published",
    "Publisher",
    "Replayed",
    "RouteLog",
    "Router",
    "Rule",
    "Sample",
    "Sampler",
    "Table",
    "encode",
    "hash_key",
    "mark_of",
    "of_device",
    "read_instances",
    "slot_of",
    "weigh",
]

_HOMES = {
    **dict.fromkeys(("Fingerprint", "Fingerprints", "Privacy"), "fingerprint"),
    **dict.fromkeys(("Health", "MemoryPressure", "Rule", "Sample"), "health"),
    **dict.fromkeys(("Instance", "read_instances", "weigh"), "instances"),
    **dict.fromkeys(("encode", "hash_key", "mark_of", "slot_of"), "key"),
    **dict.fromkeys(("Published", "Publisher"), "publication"),
    **dict.fromkeys(("Replayed",), "replay"),
    **dict.fromkeys(("Change", "Decision", "Router"), "router"),
    **dict.fromkeys(("Sampler", "of_device"), "sampling"),
    "RouteLog": "log", "Table": "table",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # who makes a key needs no NumPy
    if name in _HOMES:
        return getattr(importlib.import_module(f"dpfedge.routing.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
