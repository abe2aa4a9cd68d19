# SPDX-License-Identifier: Apache-2.0
"""A GGUF file as the source of a decoder: sizes, refusals, row order."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_decoder import HEAD_DIM, HEADS, KV_HEADS, VOCABULARY, WIDTH, decoder_file, metadata, tensors
from made_gguf import gguf_bytes

from dpfedge.compiler.blocks import Blocks
from dpfedge.compiler.decoder.gguf import GgufSource, gguf_shape
from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.errors import ModelError, Unsupported


def test_gguf_shape__reads_every_size(tmp_path: Path) -> None:
    """Sizes, rotary base and epsilon are the file's."""
    shape = gguf_shape(open_gguf(decoder_file(tmp_path, "qwen3")))

    assert (shape.layers, shape.width, shape.heads, shape.kv_heads) == (3, WIDTH, HEADS, KV_HEADS)
    assert (shape.head_dim, shape.kv_width, shape.query_width) == (HEAD_DIM, KV_HEADS * HEAD_DIM, HEADS * HEAD_DIM)
    assert (shape.vocabulary, shape.trained_context, shape.rotary.base) == (VOCABULARY, 64, 1000.0)
    assert shape.epsilon == pytest.approx(1e-5)


@pytest.mark.parametrize(("pattern", "local"), [
    (2, (True, False, True)), ([1, 0, 0], (True, False, False)), (None, (True, True, True)),
])  # fmt: skip
def test_gguf_shape__local_layers(tmp_path: Path, pattern: Any, local: tuple[bool, ...]) -> None:
    """A period, a list, or Gemma's own period of six tells which layers see the window only."""
    path = decoder_file(tmp_path, "gemma3", **{"attention.sliding_window_pattern": pattern})
    shape = gguf_shape(open_gguf(path))

    assert (shape.local, shape.window) == (local, 5)
    assert (shape.local_rotary.base, shape.local_rotary.scale) == (10_000.0, 1.0)


def test_gguf_shape__scale_of_scores(tmp_path: Path) -> None:
    """Gemma 3's largest size, known by its layers, scales scores by the width per head, all else by head_dim."""
    small = gguf_shape(open_gguf(decoder_file(tmp_path, "gemma3")))
    change: dict[str, Any] = {"block_count": 62, "attention.sliding_window_pattern": None}
    largest = gguf_shape(open_gguf(decoder_file(tmp_path, "gemma3", **change)))

    assert small.attention_scale == HEAD_DIM**-0.5
    assert largest.attention_scale == (WIDTH // HEADS) ** -0.5


def test_gguf_shape__other_architecture(tmp_path: Path) -> None:
    """Another architecture is refused with those there are."""
    path = decoder_file(tmp_path, **{"general.architecture": "llama"})
    path.write_bytes(path.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba", 1))

    with pytest.raises(Unsupported, match="cannot be imported; found mamba; allowed llama, qwen2, qwen3, gemma3"):
        gguf_shape(open_gguf(path))


@pytest.mark.parametrize(("architecture", "change", "text"), [
    ("llama", {"rope.dimension_count": 8}, r"rope\.dimension_count: partial rotary .* found 8; allowed 64"),
    ("llama", {"attention.value_length": 32}, r"attention\.value_length: .* found 32; allowed 64"),
    ("qwen2", {"rope.scaling.type": "yarn"}, r"rotary scaling cannot be imported; found yarn; allowed none, linear"),
    ("llama", {"attention.sliding_window": 16}, "sliding windows of llama cannot be imported; found 16"),
    ("qwen3", {"expert_count": 8}, "mixtures of experts cannot be imported; found 8"),
    ("llama", {"attention.key_length": 24, "attention.value_length": 24},
     "of this size; found 24; allowed a multiple"),
])  # fmt: skip
def test_gguf_shape__unsupported(tmp_path: Path, architecture: str, change: dict[str, Any], text: str) -> None:
    """What would give other numbers is refused by name, never approximated."""
    with pytest.raises(Unsupported, match=text):
        gguf_shape(open_gguf(decoder_file(tmp_path, architecture, **change)))


def test_gguf_shape__window_as_long_as_the_context(tmp_path: Path) -> None:
    """A window that no context can exceed changes nothing."""
    shape = gguf_shape(open_gguf(decoder_file(tmp_path, "qwen2", **{"attention.sliding_window": 64})))

    assert not any(shape.local)


@pytest.mark.parametrize(("change", "text"), [
    ({"attention.head_count": 0}, "heads is out of range; found 0"),
    ({"attention.head_count_kv": 3}, "head counts do not fit each other; found heads 8, kv_heads 3"),
    ({"attention.head_count_kv": [2, 2, 2]}, "head_count_kv is missing or of another type; found list; allowed int"),
    ({"rope.freq_base": "high"}, "rope.freq_base is missing or of another type"),
    ({"rope.freq_base": 0.5}, "rotary base or scale is out of range"),
    ({"block_count": 0}, "layers is out of range; found 0; allowed 1 to"),
    ({"attention.layer_norm_rms_epsilon": 2.0}, "epsilon is out of range; found 2.0"),
    ({"embedding_length": None}, r"llama\.embedding_length is missing"),
    ({"embedding_length": 512}, r"attn_q\.weight has another shape; found \(512, 256\); allowed \(512, 512\)"),
    ({"feed_forward_length": 1 << 17}, r"ffn_gate\.weight has another shape"),
])  # fmt: skip
def test_gguf_shape__wrong_sizes(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    """Sizes that do not fit, or are of another type, are refused before they are used."""
    with pytest.raises(ModelError, match=text):
        gguf_shape(open_gguf(decoder_file(tmp_path, "llama", **change)))


def test_gguf_shape__more_tokens_than_rows(tmp_path: Path) -> None:
    """Ids that have no embedding would silently read zeros."""
    path = decoder_file(tmp_path)
    path.write_bytes(gguf_bytes({**metadata("llama"), "tokenizer.ggml.tokens": ["t"] * 65}, tensors("llama")))

    with pytest.raises(ModelError, match="fewer rows than there are tokens; found 64; allowed 65 or more"):
        gguf_shape(open_gguf(path))


@pytest.mark.parametrize("change", [
    {"block_count": (1 << 32) - 1}, {"attention.head_count": 1 << 30, "attention.head_count_kv": 1 << 30},
    {"attention.key_length": 1 << 31, "attention.value_length": 1 << 31}, {"feed_forward_length": (1 << 32) - 1},
    {"embedding_length": 1 << 31}, {"attention.sliding_window_pattern": 2, "block_count": 1 << 31},
])  # fmt: skip
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_gguf_shape__absurd_sizes(tmp_path: Path, architecture: str, change: dict[str, Any]) -> None:
    """Numbers far beyond any model are refused without memory for them."""
    gguf = open_gguf(decoder_file(tmp_path, architecture, **change))
    tracemalloc.start()
    with pytest.raises((ModelError, Unsupported)):
        gguf_shape(gguf)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 1 << 20


def test_gguf_source__row_order(tmp_path: Path) -> None:
    """Rows of a llama's queries and keys get rotary halves; other matrices and architectures keep theirs."""
    for architecture in ("llama", "qwen3"):
        opened = open_gguf(decoder_file(tmp_path, architecture))
        source = GgufSource(opened, gguf_shape(opened))
        stored = opened.tensors["blk.0.attn_k.weight"].data.view("<f4").reshape(KV_HEADS * HEAD_DIM, WIDTH)
        found = source.matrix("blk.0.attn_k.weight", KV_HEADS * HEAD_DIM, WIDTH)
        order = [2 * i for i in range(HEAD_DIM // 2)] + [2 * i + 1 for i in range(HEAD_DIM // 2)]

        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found[:HEAD_DIM], stored[order] if architecture == "llama" else stored[:HEAD_DIM])


def test_gguf_source__blocks_or_floats(tmp_path: Path) -> None:
    """Blocked formats stay blocks, others become float32; kinds and names are the file's."""
    opened = open_gguf(decoder_file(tmp_path, "llama", {"rest": "F16", "attn_v": "Q6_K"}))
    source = GgufSource(opened, gguf_shape(opened))

    assert isinstance(source.matrix("blk.0.attn_v.weight", KV_HEADS * HEAD_DIM, WIDTH), Blocks)
    assert source.matrix("token_embd.weight", VOCABULARY, WIDTH).dtype == np.float32
    assert (source.kind("blk.0.attn_v.weight"), source.kind("token_embd.weight")) == ("Q6_K", "F16")
    assert source.shape("token_embd.weight") == (VOCABULARY, WIDTH)
    assert "blk.2.ffn_down.weight" in source.names
    assert source.where.endswith("llama.gguf")
    with pytest.raises(ModelError, match="tensor nothing is missing"):
        source.shape("nothing")
