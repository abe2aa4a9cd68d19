# SPDX-License-Identifier: Apache-2.0
"""Baked prefixes of a bound model: the records that could be used in, the one that fits or why none does out.

A prefix fits when every fact its numbers depend on is the same here. It maps bytes and computes none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from dpfedge.backend.api import Backend, Device, sealing
from dpfedge.binding.stale import Stale, differences
from dpfedge.package.manifest import Graph, Section
from dpfedge.package.prefix import BakedPrefix
from dpfedge.records import dataclass

__all__ = ["Candidate", "PrefixFound", "Sections", "judge_prefixes", "prefix_key"]


class Sections(Protocol):
    """Where sections are: an opened package, or one that is still being written."""

    def section(self, name: str) -> memoryview:
        """The bytes of a section in place, read-only."""

    def find(self, name: str) -> Section:
        """The record of a section."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A baked prefix and the file it lies in."""

    record: BakedPrefix
    sections: Sections
    source: str
    """`package` or `seal`."""


@dataclass(frozen=True, slots=True)
class PrefixFound:
    """The prefix to use, if one fits, and why others do not."""

    record: BakedPrefix | None = None
    memory: Mapping[str, memoryview] | None = None
    """Input port → its bytes in the mapped file."""
    source: str = "none"
    refused: tuple[Stale, ...] = ()


def judge_prefixes(model: str, candidates: Sequence[Candidate], key: Mapping[str, str]) -> PrefixFound:
    """The first candidate whose key equals `key`; otherwise none, with every difference."""
    refused: list[Stale] = []
    for candidate in candidates:
        stale = tuple(differences(f"baked prefix of {model}", candidate.record.key, key))
        if not stale:
            section = candidate.sections.section(candidate.record.section)
            memory = {
                port: section[stored.offset : stored.offset + stored.size]
                for port, stored in candidate.record.memory.items()
            }
            return PrefixFound(candidate.record, memory, candidate.source, tuple(refused))
        refused += stale
    return PrefixFound(refused=tuple(refused))


def prefix_key(
    backend: Backend, device: Device, sections: Sections, assets: Mapping[str, str], graphs: Mapping[str, Graph]
) -> dict[str, str]:
    """What the numbers of a model on a device depend on: weights, graphs, assets, backend, libraries and processor."""
    key = {f"asset/{name}": sections.find(section).sha256.hex() for name, section in assets.items()}
    key["weights"] = _digest(sections, [name for graph in graphs.values() for name in graph.weights])
    key["graphs"] = _digest(sections, [graph.section for graph in graphs.values()])
    key["backend"] = f"{backend.name} {backend.version}"
    if (seals := sealing(backend)) is not None:
        identity = seals.identity(device)
        key |= {f"device/{name}": value for name, value in identity.device.items()}
        key |= {f"library/{name}": value for name, value in identity.libraries.items()}
        key["driver"] = identity.driver
    return key


def _digest(sections: Sections, names: Sequence[str]) -> str:
    """One digest of several sections: of their names and SHA-256, so that no byte of them is read."""
    text = "".join(f"{sections.find(name).sha256.hex()}\n" for name in sorted(set(names)))
    return hashlib.sha256(text.encode()).hexdigest()
