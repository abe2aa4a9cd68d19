# SPDX-License-Identifier: Apache-2.0
"""One safetensors file, or an index of several, in; tensor views out, every offset checked before use.

The files are mapped and tensors are views of them: nothing is decoded here but `SafeTensor.values`. It is not the
`safetensors` library because that has no NumPy form of BF16, and its refusals name neither what was found nor what is
allowed. Format: https://github.com/huggingface/safetensors (README, "Format").
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.compiler.importer.confined import confined
from dpfedge.compiler.importer.mapped import MappedTensors
from dpfedge.errors import ModelError
from dpfedge.records import dataclass

__all__ = ["INDEX", "SafeTensor", "Safetensors", "open_safetensors", "open_weights", "read_json"]

INDEX = "model.safetensors.index.json"
HEADER_MAX_BYTES = 16 << 20  # a mixture of experts with 100 000 tensors has about 12 MiB
JSON_MAX_BYTES = 32 << 20  # tokenizer.json of the largest vocabularies has about 20 MiB
TENSORS_MAX = 65_536  # as in a GGUF
SHARDS_MAX = 1024  # the largest known models have about 200 files
DIMS_MAX = 8
DTYPES: Mapping[str, int] = {"F32": 4, "F16": 2, "BF16": 2}
"""dtype → bytes per element, of those that can be read."""


@dataclass(frozen=True, slots=True)
class SafeTensor:
    """One tensor: `data` are its raw bytes, row-major in `shape`."""

    name: str
    kind: str
    shape: tuple[int, ...]
    data: np.ndarray[Any, np.dtype[np.uint8]]

    def values(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Float32 values in the tensor's shape, always a copy."""
        if self.kind == "F32":
            return self.data.view("<f4").reshape(self.shape).astype(np.float32)
        if self.kind == "F16":
            return self.data.view("<f2").reshape(self.shape).astype(np.float32)
        return (self.data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(self.shape)


class Safetensors(MappedTensors[SafeTensor]):
    """One file, or the files of an index."""

    missing = "fetch the model again"


def open_weights(path: Path) -> Safetensors:
    """The tensors of one safetensors file, or of all files that an index (`path` ends in .json) names."""
    path = confined(path.parent, path.name, str(path.parent), "model file")
    return _open_sharded(path) if path.suffix == ".json" else open_safetensors(path)


def _open_sharded(index: Path) -> Safetensors:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ModelError("weight_map is missing or names no files", where=str(index), allowed="tensor name → file name")
    files = sorted(set(places.values()))
    if not 1 <= len(files) <= SHARDS_MAX or len(places) > TENSORS_MAX:
        found = f"{len(files)} files, {len(places)} tensors"
        raise ModelError("too many or no files", where=str(index), found=found, allowed=f"1 to {SHARDS_MAX} files")
    paths = {name: confined(index.parent, name, f"{index}: weight_map", "model file") for name in files}
    tensors: dict[str, SafeTensor] = {}
    maps: list[mmap.mmap] = []
    for name, path in paths.items():
        part = open_safetensors(path)
        maps += part._maps
        _compare(path, part.tensors, {tensor for tensor, place in places.items() if place == name})
        tensors |= part.tensors
    return Safetensors(index, maps, tensors)


def _compare(path: Path, tensors: Iterable[str], wanted: set[str]) -> None:
    if missing := sorted(wanted - set(tensors)):
        raise ModelError(f"tensor {missing[0]} of the index is missing", where=str(path), remedy="fetch it again")
    if extra := sorted(set(tensors) - wanted):
        raise ModelError(f"tensor {extra[0]} is not in the index", where=str(path), remedy="fetch the model again")


def open_safetensors(path: Path) -> Safetensors:
    """Map and check one file; ModelError names file, tensor, what was found and what is allowed."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 10:
            raise ModelError(f"no safetensors header: expected 10 bytes, have {size}", where=str(path))
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    length = int.from_bytes(data[:8], "little")
    if length > HEADER_MAX_BYTES:
        raise ModelError("header is too long", where=str(path), found=length, allowed=f"at most {HEADER_MAX_BYTES}")
    if 8 + length > size:
        what = f"header ends behind the file: expected {8 + length} bytes, have {size}"
        raise ModelError(what, where=str(path), remedy="fetch it again")
    header = _parse(data[8 : 8 + length], f"{path}: header")
    rows = {name: row for name, row in header.items() if name != "__metadata__"}
    if len(rows) > TENSORS_MAX:
        raise ModelError("too many tensors", where=str(path), found=len(rows), allowed=TENSORS_MAX)
    return Safetensors(path, (data,), _tensors(path, rows, data, 8 + length))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of at most 32 MiB; duplicate keys, NaN and other roots are refused."""
    size = path.stat().st_size
    if size > JSON_MAX_BYTES:
        raise ModelError("file is too long", where=str(path), found=size, allowed=f"at most {JSON_MAX_BYTES} bytes")
    return _parse(path.read_bytes(), str(path))


def _parse(data: bytes, where: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
            raise ModelError("a key stands twice", where=where, found=repr(twice)[:80])
        return found

    def no_constant(text: str) -> Any:
        raise ValueError(f"{text} is no JSON")

    try:
        value = json.loads(data.decode(), object_pairs_hook=once, parse_constant=no_constant)
        if b"\\ud" in data.lower():  # half of a surrogate pair is no text
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ModelError("not JSON", where=where, found=str(error)[:120], remedy="fetch it again") from error
    if not isinstance(value, dict):
        raise ModelError("not a JSON object", where=where, found=type(value).__name__)
    return value


def _tensors(path: Path, rows: Mapping[str, Any], data: mmap.mmap, start: int) -> dict[str, SafeTensor]:
    checked = sorted((_row(path, name, row) for name, row in rows.items()), key=lambda item: (item[3], item[0]))
    at, size = 0, len(data) - start
    tensors: dict[str, SafeTensor] = {}
    for name, kind, shape, begin, end in checked:
        if begin != at:
            what = "overlaps the one before it" if begin < at else "leaves a gap before it"
            raise ModelError(f"tensor {name} {what}", where=str(path), found=f"offset {begin}", allowed=at)
        if end > size:
            what = f"tensor {name} ends behind the file: expected {start + end} bytes, have {len(data)}"
            raise ModelError(what, where=str(path), remedy="fetch it again")
        at = end
        tensors[name] = SafeTensor(name, kind, shape, np.frombuffer(data, np.uint8, end - begin, start + begin))
    if at != size:
        raise ModelError("bytes behind the last tensor", where=str(path), found=size, allowed=at)
    return tensors


def _row(path: Path, name: str, row: Any) -> tuple[str, str, tuple[int, ...], int, int]:
    where = f"{path}: tensor {name[:200]}"
    if not isinstance(row, dict) or row.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelError("wrong fields", where=where, found=str(row)[:80], allowed="dtype, shape, data_offsets")
    kind, shape = row["dtype"], _counts(row["shape"], where, "shape", DIMS_MAX)
    if kind not in DTYPES:
        raise ModelError("dtype cannot be read", where=where, found=str(kind)[:40], allowed=", ".join(DTYPES))
    offsets = _counts(row["data_offsets"], where, "data_offsets", 2)
    wanted = math.prod(shape) * DTYPES[kind]
    if len(offsets) != 2 or offsets[1] - offsets[0] != wanted:
        found = f"{row['data_offsets']} for {kind}{list(shape)}"
        raise ModelError("size does not fit dtype and shape", where=where, found=found, allowed=f"{wanted} bytes")
    return name, kind, shape, offsets[0], offsets[1]


def _counts(value: Any, where: str, what: str, most: int) -> tuple[int, ...]:
    if (
        not isinstance(value, list)
        or len(value) > most
        or not all(type(item) is int and 0 <= item < 1 << 48 for item in value)
    ):
        allowed = f"at most {most} numbers below 2^48"
        raise ModelError(f"{what} is no list of sizes", where=where, found=str(value)[:80], allowed=allowed)
    return tuple(value)
