# SPDX-License-Identifier: Apache-2.0
"""The record of a baked prefix: the manifest's map in, tokens, key and places of the key/value memory out; and back.

It checks types and bounds; `verify` checks that the places lie inside the section. Whether a prefix fits what runs here
is judged by `dpfedge.binding.prefix`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge import limits
from dpfedge.errors import FormatError
from dpfedge.package.fields import Node
from dpfedge.records import dataclass
from dpfedge.tensors import DTYPE_BYTES

__all__ = ["PREFIX_ALIGN", "Baked", "BakedPrefix", "Stored", "check_memory", "read_prefix"]

PREFIX_ALIGN = 64
"""Each port's memory begins at a multiple of this inside the section: a cache line, and the widest vector load."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor inside a section; `offset` and `size` in bytes."""

    offset: int
    size: int
    dtype: str
    dims: tuple[int, ...]

    def to_map(self) -> dict[str, Any]:
        """The form kept in a manifest."""
        return {"offset": self.offset, "size": self.size, "dtype": self.dtype, "dims": list(self.dims)}


@dataclass(frozen=True, slots=True)
class BakedPrefix:
    """Key/value memory of the tokens every conversation begins with, as one target's graph wrote it."""

    section: str
    key: Mapping[str, str]
    """What its numbers depend on, by name; any difference makes it stale."""
    tokens: tuple[int, ...]
    memory: Mapping[str, Stored]
    """Input port of the graph → its first rows, f32[1, heads, tokens, dim] for family `llama`."""

    def to_map(self) -> dict[str, Any]:
        """The form kept in a manifest."""
        memory = {port: stored.to_map() for port, stored in self.memory.items()}
        return {"section": self.section, "key": dict(self.key), "tokens": list(self.tokens), "memory": memory}


@dataclass(frozen=True, slots=True)
class Baked:
    """A prefix to be stored; `data` is the section's bytes in pieces."""

    key: Mapping[str, str]
    tokens: tuple[int, ...]
    memory: Mapping[str, Stored]
    data: tuple[bytes, ...]

    def record(self, section: str) -> BakedPrefix:
        """Its record once `data` lies in `section`."""
        return BakedPrefix(section, self.key, self.tokens, self.memory)


def read_prefix(node: Node) -> BakedPrefix | None:
    """The record of field `prefix`; None when it is absent. FormatError names the field."""
    if node.absent():
        return None
    tokens = tuple(item.integer(0, limits.TOKEN_MAX) for item in node.find("tokens").items(limits.PREFIX_TOKENS_MAX))
    if not tokens:
        raise node.find("tokens").error("prefix holds nothing")
    ports = list(node.find("memory").entries(limits.PORTS_MAX))
    if not ports:
        raise node.find("memory").error("prefix holds nothing")
    return BakedPrefix(
        section=node.find("section").name(),
        key={name: value.text(limits.PREFIX_KEY_MAX_BYTES) for name, value in node.find("key").entries()},
        tokens=tokens,
        memory={port: _stored(value) for port, value in ports},
    )


def check_memory(prefix: BakedPrefix, section_bytes: int, where: str) -> None:
    """Refuse a place of `prefix` that leaves its section of `section_bytes`; FormatError names the port."""
    for port, stored in prefix.memory.items():
        if stored.offset + stored.size > section_bytes:
            raise FormatError(
                "values end behind their section",
                where=f"{where}.memory.{port}",
                found=stored.offset + stored.size,
                allowed=f"at most {section_bytes}",
            )


def _stored(node: Node) -> Stored:
    dtype = node.find("dtype").text(limits.NAME_MAX_BYTES)
    if dtype not in DTYPE_BYTES:
        raise node.find("dtype").error("unknown dtype", found=repr(dtype[:40]), allowed=", ".join(DTYPE_BYTES))
    dims = tuple(item.integer(0, limits.TENSOR_MAX_DIM) for item in node.find("dims").items(limits.TENSOR_MAX_RANK))
    stored = Stored(
        node.find("offset").integer(0, limits.PACKAGE_MAX_BYTES),
        node.find("size").integer(0, limits.PACKAGE_MAX_BYTES),
        dtype,
        dims,
    )
    wanted = DTYPE_BYTES[dtype]
    for dim in dims:
        wanted *= dim
    if stored.size != wanted:
        raise node.find("size").error("size differs from dtype and dims", found=stored.size, allowed=wanted)
    if stored.offset % PREFIX_ALIGN:
        allowed = f"a multiple of {PREFIX_ALIGN}"
        raise node.find("offset").error("values are not aligned", found=stored.offset, allowed=allowed)
    return stored
