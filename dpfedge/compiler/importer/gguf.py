# SPDX-License-Identifier: Apache-2.0
"""A GGUF file in, its metadata and tensor views out; every count, length and offset is checked before it is followed.

The file is mapped and tensors are views of it: nothing is decoded here (see `importer/ggml.py`).
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.compiler.importer.mapped import MappedTensors
from dpfedge.errors import ModelError
from dpfedge.records import dataclass

__all__ = ["BLOCKS", "BLOCK_BYTES", "Gguf", "GgufTensor", "open_gguf"]

BLOCKS: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 20: ("IQ4_NL", 32, 18), 23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
}  # fmt: skip
"""ggml type → (name, elements per block, bytes per block)."""
BLOCK_BYTES: Mapping[str, int] = {name: size for name, _, size in BLOCKS.values()}
_REFUSED: Mapping[int, str] = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
    40: "NVFP4",
}  # fmt: skip

KEYS_MAX = 4096  # the largest known files have about 100
TENSORS_MAX = 65_536  # a mixture of experts of 100 layers has about 2 000
STRING_MAX_BYTES = 16 << 20  # chat templates take up to 100 KiB
ARRAY_MAX = 4 << 20  # the largest vocabularies have about 260 000 entries
DEPTH_MAX = 2  # arrays of arrays exist in no known file, but the format allows them
DIMS_MAX = 4

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: `shape` with the fastest dimension last (the reverse of the file), `data` the raw blocks."""

    name: str
    kind: str
    shape: tuple[int, ...]
    data: np.ndarray[Any, np.dtype[np.uint8]]


class _Cursor:
    """Reads forward through mapped bytes; every read is checked against the file's size first."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.at = data, path, 0

    def take(self, count: int, what: str) -> int:
        if count > len(self.data) - self.at:
            raise ModelError(
                f"{what} ends behind the file: expected {self.at + count} bytes, have {len(self.data)}",
                where=str(self.path),
                remedy="fetch the file again",
            )
        start, self.at = self.at, self.at + count
        return start

    def scalar(self, form: str, what: str) -> Any:
        return struct.unpack_from(form, self.data, self.take(struct.calcsize(form), what))[0]

    def count(self, limit: int, what: str) -> int:
        value = int(self.scalar("<Q", what))
        if value > limit:
            raise ModelError(f"{what} is out of range", where=str(self.path), found=value, allowed=f"at most {limit}")
        return value

    def text(self, what: str) -> str:
        size = self.count(STRING_MAX_BYTES, f"length of {what}")
        start = self.take(size, what)
        try:
            return self.data[start : start + size].decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{what} is no UTF-8", where=f"{self.path}: byte {start + error.start}") from error


class Gguf(MappedTensors[GgufTensor]):
    """An open file, or the parts of a split one."""

    missing = "export the model again"

    def __init__(
        self, path: Path, maps: Sequence[mmap.mmap], metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
    ) -> None:
        super().__init__(path, maps, tensors)
        self.metadata = metadata

    @classmethod
    def joined(cls, parts: Sequence[Gguf]) -> Gguf:
        """One model of several files: the metadata of the first, the tensors of all."""
        data = [mapped for part in parts for mapped in part._maps]
        tensors = {name: tensor for part in parts for name, tensor in part.tensors.items()}
        return cls(parts[0].path, data, parts[0].metadata, tensors)

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Metadata `key`, a `kind`; `default` where the file has none, ModelError where there is no default either."""
        value = self.metadata.get(key, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            found = "nothing" if value is None else type(value).__name__
            what = f"metadata {key} is missing or of another type"
            raise ModelError(what, where=str(self.path), found=found, allowed=kind.__name__)
        return value


def open_gguf(path: Path) -> Gguf:
    """Map and check one file (split models: `gguf_parts.py`); ModelError names the place and what is missing."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 24:
            raise ModelError(f"no GGUF header: expected 24 bytes, have {size}", where=str(path))
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    cursor = _Cursor(data, path)
    if data[: cursor.take(4, "magic") + 4] != b"GGUF":
        raise ModelError("not a GGUF file", where=str(path), found=data[:4].hex(), allowed="47475546")
    version = cursor.scalar("<I", "version")
    if version not in (2, 3):
        raise ModelError("unknown GGUF version", where=str(path), found=version, allowed="2, 3")
    tensor_count, key_count = cursor.count(TENSORS_MAX, "tensor count"), cursor.count(KEYS_MAX, "key count")
    metadata: dict[str, Any] = {}
    for index in range(key_count):
        key = cursor.text(f"key {index}")
        metadata[key] = _value(cursor, cursor.scalar("<I", f"type of {key}"), key)
    return Gguf(path, [data], metadata, _tensors(cursor, tensor_count, metadata.get("general.alignment", 32)))


def _value(cursor: _Cursor, kind: int, key: str, depth: int = 0) -> Any:
    if kind in _SCALARS:
        return cursor.scalar(_SCALARS[kind], key)
    if kind == _STRING:
        return cursor.text(key)
    if kind != _ARRAY or depth == DEPTH_MAX:
        raise ModelError(f"unknown type of metadata {key}", where=str(cursor.path), found=kind, allowed="0 to 12")
    item, count = cursor.scalar("<I", f"item type of {key}"), cursor.count(ARRAY_MAX, f"length of {key}")
    if item in _SCALARS:
        dtype = np.dtype(_SCALARS[item])
        start = cursor.take(count * dtype.itemsize, key)
        return np.frombuffer(cursor.data, dtype, count, start).tolist()
    return [_value(cursor, item, key, depth + 1) for _ in range(count)]


def _tensors(cursor: _Cursor, count: int, alignment: Any) -> dict[str, GgufTensor]:
    if not isinstance(alignment, int) or not 8 <= alignment <= 65_536 or alignment & (alignment - 1):
        raise ModelError(
            "alignment is no power of two in range", where=str(cursor.path), found=alignment, allowed="8 to 65536"
        )
    rows = [_tensor_row(cursor, index) for index in range(count)]
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, kind, dims, offset in rows:
        if name in tensors:
            raise ModelError(f"two tensors are called {name}", where=str(cursor.path))
        title, per_block, block_bytes = BLOCKS[kind]
        if offset % alignment or (dims and dims[0] % per_block):
            raise ModelError(
                f"tensor {name} is not aligned", where=str(cursor.path), found=f"offset {offset}, dims {dims}"
            )
        size = math.prod(dims) // per_block * block_bytes
        cursor.at = min(start + offset, len(cursor.data))
        begin = cursor.take(start + offset + size - cursor.at, f"tensor {name}")
        tensors[name] = GgufTensor(
            name, title, tuple(reversed(dims)), np.frombuffer(cursor.data, np.uint8, size, begin)
        )
    return tensors


def _tensor_row(cursor: _Cursor, index: int) -> tuple[str, int, tuple[int, ...], int]:
    name = cursor.text(f"name of tensor {index}")
    rank = cursor.scalar("<I", f"rank of {name}")
    if rank > DIMS_MAX:
        raise ModelError(f"tensor {name} has too many dimensions", where=str(cursor.path), found=rank, allowed=DIMS_MAX)
    dims = tuple(int(cursor.scalar("<Q", f"dims of {name}")) for _ in range(rank))
    kind = cursor.scalar("<I", f"type of {name}")
    if kind not in BLOCKS:
        raise ModelError(
            f"tensor {name} has a type dpfedge cannot read",
            where=str(cursor.path),
            found=_REFUSED.get(kind, f"type {kind}"),
            allowed=", ".join(BLOCK_BYTES),
            remedy="use a Q4_K_M, Q6_K or Q8_0 file of the model, or convert it with llama-quantize",
        )
    return name, kind, dims, cursor.scalar("<Q", f"offset of {name}")
