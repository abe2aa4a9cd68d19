# SPDX-License-Identifier: Apache-2.0
"""The GGUF reader: what it reads, and what it refuses before following it."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import numpy as np
import pytest
from made_gguf import METADATA, gguf_bytes, llama_file, llama_tensors

from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.errors import ModelError


def test_open_gguf__reads_metadata_and_tensors(tmp_path: Path) -> None:
    """Values come back with their types, tensors as views with reversed dimensions."""
    gguf = open_gguf(llama_file(tmp_path))

    assert gguf.metadata["llama.block_count"] == 2
    assert gguf.metadata["tokenizer.ggml.tokens"][3] == "ab"
    assert gguf.tensors["blk.0.attn_k.weight"].shape == (32, 64)
    assert gguf.tensors["blk.0.attn_k.weight"].kind == "Q4_1"
    assert gguf.tensors["blk.0.attn_k.weight"].data.nbytes == 32 * 64 // 32 * 20


def test_open_gguf__views_not_copies(tmp_path: Path) -> None:
    """Tensor data is memory of the file's mapping."""
    data = open_gguf(llama_file(tmp_path)).tensors["token_embd.weight"].data

    assert not data.flags.owndata
    assert not data.flags.writeable


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
def test_open_gguf__cut(tmp_path: Path, share: float) -> None:
    """A file cut anywhere is refused with both sizes and never read behind its end."""
    path = llama_file(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])

    with pytest.raises(ModelError, match=r"expected \d+ bytes, have \d+"):
        open_gguf(path)


def test_open_gguf__not_gguf(tmp_path: Path) -> None:
    """Another file is refused by its magic."""
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGML" + bytes(60))

    with pytest.raises(ModelError, match="not a GGUF file; found 47474d4c"):
        open_gguf(path)


@pytest.mark.parametrize(("place", "what"), [(8, "tensor count"), (16, "key count"), (24, "length of key 0")])
def test_open_gguf__huge_count(tmp_path: Path, place: int, what: str) -> None:
    """A count beyond its limit is refused, not allocated."""
    path = llama_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[place : place + 8] = struct.pack("<Q", 1 << 60)
    path.write_bytes(data)

    with pytest.raises(ModelError, match=f"{what} is out of range; found {1 << 60}"):
        open_gguf(path)


def test_open_gguf__unknown_version_and_type(tmp_path: Path) -> None:
    """Version and tensor type are named with what is allowed."""
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes({}, {}).replace(b"GGUF\x03", b"GGUF\x09"))
    with pytest.raises(ModelError, match="unknown GGUF version; found 9; allowed 2, 3"):
        open_gguf(path)

    good = gguf_bytes({}, {"w": ("F32", (4,), bytes(16))})
    path.write_bytes(good.replace(struct.pack("<QIQ", 4, 0, 0), struct.pack("<QIQ", 4, 39, 0)))
    with pytest.raises(
        ModelError,
        match=r"tensor w has a type dpfedge cannot read; found MXFP4; allowed .* convert it with llama-quantize",
    ):
        open_gguf(path)


def test_open_gguf__one_name_twice(tmp_path: Path) -> None:
    """Two tensors of one name are refused."""
    path = tmp_path / "x.gguf"
    data = gguf_bytes({}, {"w": ("F32", (4,), bytes(16)), "v": ("F32", (4,), bytes(16))})
    path.write_bytes(data.replace(struct.pack("<Q", 1) + b"v", struct.pack("<Q", 1) + b"w"))

    with pytest.raises(ModelError, match="two tensors are called w"):
        open_gguf(path)


def test_get__missing_or_other_type(tmp_path: Path) -> None:
    """A key that is missing or of another type is named."""
    gguf = open_gguf(llama_file(tmp_path))

    with pytest.raises(ModelError, match=r"metadata llama\.block_count is missing or of another type"):
        gguf.get("llama.block_count", str)


def test_tensor__other_shape(tmp_path: Path) -> None:
    """A tensor of another shape is refused with both."""
    gguf = open_gguf(llama_file(tmp_path))

    with pytest.raises(ModelError, match=r"found \(96, 64\); allowed \(1, 1\)"):
        gguf.tensor("token_embd.weight", (1, 1))


def test_open_gguf__any_byte_changed(tmp_path: Path) -> None:
    """Whatever byte of the header changes: the file is read or refused with a ModelError, nothing else."""
    path = tmp_path / "x.gguf"
    good = gguf_bytes({key: METADATA[key] for key in list(METADATA)[:4]}, {"w": ("F32", (4,), bytes(16))})
    random = np.random.default_rng(1)
    for index in range(len(good) - 16):
        path.write_bytes(good[:index] + bytes([good[index] ^ int(random.integers(1, 256))]) + good[index + 1 :])
        with contextlib.suppress(ModelError):
            open_gguf(path)


def test_llama_tensors__are_aligned() -> None:
    """The test's own writer keeps the alignment it claims."""
    assert len(gguf_bytes(METADATA, llama_tensors())) % 32 == 0
