# SPDX-License-Identifier: Apache-2.0
"""The safetensors reader: what the library writes it reads, and what it refuses before following it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_safetensors import write_safetensors
from safetensors.numpy import save_file

from dpfedge.compiler.importer.safetensors import INDEX, open_safetensors, open_weights, read_json
from dpfedge.errors import ModelError

A, B = np.arange(12, dtype=np.float32).reshape(3, 4) / 7, np.arange(6, dtype=np.float16)


def written(folder: Path) -> Path:
    """A file of two tensors."""
    path = folder / "model.safetensors"
    save_file({"a": A, "b": B}, path)
    return path


def made(path: Path, header: Any, body: bytes = bytes(8)) -> Path:
    """A file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def row(**changes: Any) -> dict[str, Any]:
    """A header with one tensor of 8 bytes."""
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


def test_open_safetensors__reads_what_the_library_writes(tmp_path: Path) -> None:
    """Shapes, dtypes and values come back; the data is the file's mapping."""
    with open_safetensors(written(tmp_path)) as file:
        a = file.tensor("a", (3, 4))

        assert (a.values() == A).all()
        assert (file.tensor("b", (6,)).values() == B).all()
        assert not a.data.flags.owndata
        assert not a.data.flags.writeable
        del a


def test_open_safetensors__bf16(tmp_path: Path) -> None:
    """BF16 is widened exactly."""
    path = write_safetensors(tmp_path / "model.safetensors", {"a": A}, "BF16")
    wanted = A.astype(ml_dtypes.bfloat16).astype(np.float32)

    assert (open_safetensors(path).tensor("a", (3, 4)).values() == wanted).all()


def test_tensor__missing_or_other_shape(tmp_path: Path) -> None:
    """Both are named."""
    file = open_safetensors(written(tmp_path))

    with pytest.raises(ModelError, match="tensor c is missing"):
        file.tensor("c", (1,))
    with pytest.raises(ModelError, match=r"tensor a has another shape; found \(3, 4\); allowed \(4, 3\)"):
        file.tensor("a", (4, 3))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.2, 0.5, 0.9, 0.99])
def test_open_safetensors__cut(tmp_path: Path, share: float) -> None:
    """A file cut anywhere is refused with both sizes."""
    path = written(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])

    with pytest.raises(ModelError, match=r"expected \d+ bytes, have \d+"):
        open_safetensors(path)


@pytest.mark.parametrize(("header", "what"), [
    (b"[" * 100_000, "not JSON"), (b"{", "not JSON"), (b'{"a": "\\uD800"}', "not JSON"),
    (b"\xff\xff", "not JSON"), (b"[1]", "not a JSON object"),
    (b'{"x":NaN}', "NaN is no JSON"), (b'{"x":1,"x":2}', "a key stands twice; found 'x'"),
    ({"x": 1}, "wrong fields"), ({"x": {"dtype": "F32"}}, "wrong fields"), (row(more=1), "wrong fields"),
    (row(dtype="F8_E4M3"), "dtype cannot be read; found F8_E4M3; allowed F32, F16, BF16"),
    (row(dtype=None), "dtype cannot be read"), (row(dtype="I64"), "dtype cannot be read"),
    (row(shape=[-2]), "shape is no list of sizes"), (row(shape=[2.0]), "shape is no list of sizes"),
    (row(shape=[True, 2]), "shape is no list of sizes"), (row(shape=[1] * 9), "shape is no list of sizes"),
    (row(shape=[1 << 60]), "shape is no list of sizes"), (row(shape=[3]), "size does not fit dtype and shape"),
    (row(data_offsets=[8, 0]), "size does not fit"), (row(data_offsets=[0]), "size does not fit"),
    (row(data_offsets=[0, 8, 16]), "data_offsets is no list"), (row(data_offsets=[4, 12]), "leaves a gap before it"),
    (row(shape=[1], data_offsets=[0, 4]), "bytes behind the last tensor; found 8; allowed 4"),
    (row(shape=[4], data_offsets=[0, 16]), "ends behind the file"), ({}, "bytes behind the last tensor"),
    (row() | {"y": row()["x"]}, "tensor y overlaps the one before it; found offset 0; allowed 8"),
])  # fmt: skip
def test_open_safetensors__hostile(tmp_path: Path, header: Any, what: str) -> None:
    """Each damage is refused by name, with the file's path."""
    with pytest.raises(ModelError, match=what) as caught:
        open_safetensors(made(tmp_path / "bad.safetensors", header))

    assert str(tmp_path) in str(caught.value)


def test_open_safetensors__long_header(tmp_path: Path) -> None:
    """An absurd header length is refused before anything is read."""
    path = tmp_path / "bad.safetensors"
    path.write_bytes((1 << 62).to_bytes(8, "little") + bytes(8))

    with pytest.raises(ModelError, match="header is too long; found 4611686018427387904; allowed at most 16777216"):
        open_safetensors(path)


@settings(deadline=None, max_examples=200)
@given(place=st.integers(0, 220), byte=st.integers(0, 255))
def test_open_safetensors__flipped_byte(tmp_path_factory: pytest.TempPathFactory, place: int, byte: int) -> None:
    """Any one changed byte is either refused as a ModelError or leaves tensors inside the file."""
    path = written(tmp_path_factory.mktemp("flip"))
    data = bytearray(path.read_bytes())
    data[place % len(data)] = byte
    path.write_bytes(data)

    try:
        file = open_safetensors(path)
    except ModelError:
        return
    assert sum(tensor.data.nbytes for tensor in file.tensors.values()) == A.nbytes + B.nbytes


def sharded(folder: Path, places: dict[str, str]) -> Path:
    """The index of two files."""
    save_file({"a": A}, folder / "model-1.safetensors")
    save_file({"b": B}, folder / "model-2.safetensors")
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder / INDEX


def test_open_weights__sharded(tmp_path: Path) -> None:
    """The files of an index are one set of tensors."""
    with open_weights(sharded(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})) as file:
        assert (file.tensor("b", (6,)).values() == B).all()
        assert sorted(file.tensors) == ["a", "b"]


@pytest.mark.parametrize(("places", "what"), [
    ({"a": "../model-1.safetensors"}, "model file lies outside the model's folder; found ../model-1.safetensors"),
    ({"a": "/etc/passwd"}, "lies outside the model's folder; found /etc/passwd"),
    ({"a": "absent.safetensors"}, "model file is missing; found absent.safetensors"),
    ({"a": 1}, "weight_map is missing or names no files"), (None, "weight_map is missing"),
    ({}, "too many or no files"),
    ({"a": "model-1.safetensors", "c": "model-2.safetensors"}, "tensor c of the index is missing"),
    ({"a": "model-1.safetensors", "b": "model-1.safetensors"}, "tensor b of the index is missing"),
])  # fmt: skip
def test_open_weights__bad_index(tmp_path: Path, places: Any, what: str) -> None:
    """An index that leads out, or does not say what the files hold, is refused by name."""
    with pytest.raises(ModelError, match=what):
        open_weights(sharded(tmp_path, places))


def test_open_weights__unlisted_tensor(tmp_path: Path) -> None:
    """A tensor the index does not list is refused: it would be ignored silently."""
    index = sharded(tmp_path, {"a": "model-1.safetensors"})
    save_file({"a": A, "z": B}, tmp_path / "model-1.safetensors")

    with pytest.raises(ModelError, match="tensor z is not in the index"):
        open_weights(index)


def test_open_weights__one_file(tmp_path: Path) -> None:
    """A file alone needs no index."""
    assert sorted(open_weights(written(tmp_path)).tensors) == ["a", "b"]


def test_open_weights__link_out(tmp_path: Path) -> None:
    """A symbolic link out of the folder is refused, as in a download cache."""
    written(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").symlink_to(tmp_path / "model.safetensors")

    with pytest.raises(ModelError, match=r"lies outside the model's folder; found model\.safetensors"):
        open_weights(tmp_path / "model" / "model.safetensors")


def test_read_json__limits(tmp_path: Path) -> None:
    """A file beyond the limit is refused unread."""
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate((32 << 20) + 1)

    with pytest.raises(ModelError, match="file is too long; found 33554433"):
        read_json(path)
