# SPDX-License-Identifier: Apache-2.0
"""What a seal of one graph holds: programs as the driver compiled them, each under its key with its digest, and tuning.

A driver may crash on damaged bytes, so each program is compared with its digest before it is handed over. Layout: u64
size of the index, the index as CBOR, the programs one after the other. It compiles nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import cbor2

from dpfedge.errors import BackendError

__all__ = ["SEALED", "Store", "key_of", "read", "write"]

SEALED = "programs"
"""Name of what is sealed per graph."""
_HEAD = struct.Struct("<Q")
_VERSION = 2


def key_of(identity: str, source: str, options: tuple[str, ...]) -> str:
    """Under which a program is kept: everything its bytes depend on."""
    text = "\0".join((identity, source, *options))
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """The programs of one graph in the mapped sidecar."""

    def __init__(
        self, programs: Mapping[str, tuple[memoryview, bytes]], tuning: Mapping[str, Any], memory: str | None,
        lanes: int | None, joined: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._programs, self.tuning, self.memory, self.lanes, self.joined = programs, tuning, memory, lanes, joined

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the programs."""
        return frozenset(self._programs)

    def program(self, key: str) -> bytes | None:
        """The program under `key`; None where there is none, or where its bytes are not those that were sealed."""
        if (found := self._programs.get(key)) is None:
            return None
        data, digest = found
        return bytes(data) if hashlib.sha256(data).digest() == digest else None


def write(
    programs: Mapping[str, bytes], tuning: Mapping[str, Any], memory: str | None = None, lanes: int | None = None,
    joined: Sequence[str] = (),
) -> bytes:  # fmt: skip
    """The bytes of a seal; `memory` is the way of sharing it, `lanes` the floats of a vector, that the device was found
    to have, `joined` the texts of programs of several kernels (`joining.py`)."""
    places, at = {}, 0
    for key, data in sorted(programs.items()):
        places[key] = [at, len(data), hashlib.sha256(data).digest()]
        at += len(data)
    document = {"version": _VERSION, "programs": places, "tuning": dict(tuning), "memory": memory, "lanes": lanes}
    document["joined"] = list(joined)
    index = cbor2.dumps(document, canonical=True)
    return b"".join((_HEAD.pack(len(index)), index, *(data for _, data in sorted(programs.items()))))


def read(data: memoryview, where: str) -> Store:
    """The store in these bytes; BackendError when they hold none."""
    try:
        (size,) = _HEAD.unpack_from(data)
        index = cbor2.loads(bytes(data[_HEAD.size : _HEAD.size + size]))
        if index["version"] != _VERSION:
            raise ValueError(f"version {index['version']}")
        body = data[_HEAD.size + size :]
        programs = {
            str(key): (body[at : at + length], bytes(sha)) for key, (at, length, sha) in index["programs"].items()
        }
        joined = [str(text) for text in index["joined"]]
        return Store(programs, dict(index["tuning"]), index["memory"], index["lanes"], joined)
    except (struct.error, cbor2.CBORDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackendError("the seal's bytes are damaged", where=where, found=str(error)[:200]) from error
