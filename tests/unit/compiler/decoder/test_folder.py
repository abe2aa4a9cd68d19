# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders as decoders: the logits of the same weights in a GGUF, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_folder import HEAD_DIM, config, gguf_file, hf_folder, weights
from made_graphs import loaded, relative
from made_safetensors import write_safetensors

from dpfedge.compiler.decoder import DecoderShape, TensorSource, build_decoder
from dpfedge.compiler.decoder.folder import FolderSource, folder_shape
from dpfedge.compiler.decoder.gguf import GgufSource, gguf_shape
from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.compiler.importer.safetensors import open_weights, read_json
from dpfedge.errors import ModelError, Unsupported

IDS = [1, 5, 9, 33, 2, 71, 90, 4, 4, 17]
KINDS = ["llama", "qwen2", "qwen3", "gemma3_text"]


def opened(folder: Path) -> tuple[FolderSource, DecoderShape]:
    """Source and shape of a folder."""
    data = read_json(folder / "config.json")
    shape = folder_shape(data, str(folder / "config.json"))
    return FolderSource(open_weights(folder / "model.safetensors"), data, shape), shape


def logits(source: TensorSource, shape: DecoderShape) -> np.ndarray[Any, Any]:
    """Behind the last of IDS, computed in float32."""
    graph = loaded(build_decoder(source, shape, context=32, mode="exact"))
    call = graph.bind()
    for spec in graph.inputs[2:]:
        array = np.zeros(spec.dims, np.float32)
        call.set_input(spec.name, array)
        call.set_output(spec.name.replace("past_key_values", "present"), array)
    call.set_input("input_ids", np.array([IDS], np.int64))
    call.set_input("attention_mask", np.ones((1, len(IDS)), np.int64))
    call.run()
    return call.output("logits")[0, 0].copy()


@pytest.mark.parametrize("kind", KINDS)
def test_folder_source__equals_gguf(tmp_path: Path, kind: str) -> None:
    """One set of random weights gives equal logits from a folder and from a GGUF."""
    gguf = open_gguf(gguf_file(tmp_path / "model.gguf", kind))
    shape = gguf_shape(gguf)
    source, folder = opened(hf_folder(tmp_path / "hf", kind))

    assert folder == shape
    assert relative(logits(source, folder), logits(GgufSource(gguf, shape), shape)) < 1e-6


@pytest.mark.parametrize(("dtype", "most"), [("F16", 2e-3), ("BF16", 2e-2)])
def test_folder_source__narrow_floats(tmp_path: Path, dtype: str, most: float) -> None:
    """F16 and BF16 files give what their rounding allows, and say what they are."""
    wide, narrow = opened(hf_folder(tmp_path / "wide")), opened(hf_folder(tmp_path / "narrow", dtype=dtype))

    assert 0 < relative(logits(*narrow), logits(*wide)) < most
    assert narrow[0].kind("blk.0.attn_q.weight") == dtype


def test_folder_source__tied(tmp_path: Path) -> None:
    """A tied model without and with a head of its own gives the same logits: the embedding counts."""
    without = opened(hf_folder(tmp_path / "a", head=False, tie_word_embeddings=True))
    beside = opened(hf_folder(tmp_path / "b", head=True, tie_word_embeddings=True))

    assert "output.weight" not in beside[0].names
    tensors = weights("llama")
    del tensors["lm_head.weight"]
    write_safetensors(tmp_path / "a" / "model.safetensors", tensors)
    assert relative(logits(*opened(tmp_path / "a")), logits(*beside)) == 0
    assert sorted(without[0].names) == sorted(beside[0].names)


def test_folder_source__head_is_missing(tmp_path: Path) -> None:
    """A model that is not tied needs its head."""
    with pytest.raises(ModelError, match=r"lm_head\.weight is missing; found tie_word_embeddings is not set"):
        opened(hf_folder(tmp_path / "hf", head=False))


def test_folder_source__unknown_tensor(tmp_path: Path) -> None:
    """A tensor with no place is refused under its own name; the rotary table of old files is not used."""
    folder = hf_folder(tmp_path / "hf")
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4)}
    write_safetensors(folder / "model.safetensors", {**weights("llama"), **table})
    assert "model.layers.0.self_attn.rotary_emb.inv_freq" not in opened(folder)[0].names

    odd = {"model.layers.0.self_attn.o_proj.bias": np.zeros(64)}
    write_safetensors(folder / "model.safetensors", {**weights("llama"), **odd})
    with pytest.raises(Unsupported, match=r"no place in a llama graph; found blk\.0\.attn_output\.bias"):
        build_decoder(*opened(folder), context=8)


def test_folder_source__missing_and_other_shape(tmp_path: Path) -> None:
    """Both name the tensor."""
    source, _ = opened(hf_folder(tmp_path / "hf"))

    with pytest.raises(ModelError, match=r"tensor blk\.7\.attn_q\.weight is missing"):
        source.matrix("blk.7.attn_q.weight", 64, 64)
    with pytest.raises(ModelError, match=r"q_proj\.weight has another shape; found \(128, 64\); allowed \(64, 64\)"):
        source.matrix("blk.0.attn_q.weight", 64, 64)
    assert source.shape("blk.0.attn_q.weight") == (128, 64)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip


def test_folder_source__llama3_factors(tmp_path: Path) -> None:
    """The factors are those of the formula in the Llama 3.1 release, whichever key the file has them under."""
    source, shape = opened(hf_folder(tmp_path / "a", rope_scaling=LLAMA3))
    newer, _ = opened(hf_folder(tmp_path / "b", rope_parameters={**LLAMA3, "rope_theta": 10000.0}))
    wanted = []
    for pair in range(HEAD_DIM // 2):
        frequency = 10000.0 ** (-2 * pair / HEAD_DIM)
        wave = 2 * np.pi / frequency
        smooth = (32 / wave - 1) / (4 - 1)
        scaled = (1 - smooth) * frequency / 8 + smooth * frequency
        wanted.append(frequency / (frequency / 8 if wave > 32 else frequency if wave < 8 else scaled))

    found = source.vector("rope_freqs.weight", HEAD_DIM // 2)
    assert np.allclose(found, wanted, rtol=1e-6)
    assert (newer.vector("rope_freqs.weight", HEAD_DIM // 2) == found).all()
    assert source.shape("rope_freqs.weight") == (HEAD_DIM // 2,)
    assert shape.rotary.scale == 1.0


def test_folder_shape__linear() -> None:
    """Linear scaling multiplies positions."""
    assert folder_shape(config("llama", rope_scaling={"type": "linear", "factor": 4.0}), "x").rotary.scale == 0.25


def test_folder_shape__gemma_layers() -> None:
    """Windows come from layer_types where there are any, the local base from either generation of files."""
    types = ["full_attention", "sliding_attention"]
    bases = {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
             "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}  # fmt: skip
    shape = folder_shape(config("gemma3_text", layer_types=types, rope_parameters=bases), "x")

    assert shape.local == (False, True)
    assert (shape.rotary.base, shape.local_rotary.base) == (1e6, 2e4)
    assert folder_shape(config("gemma3_text"), "x").local == (True, False)
    assert shape.attention_scale == pytest.approx(HEAD_DIM**-0.5)


@pytest.mark.parametrize(("kind", "change", "what"), [
    ("llama", {"model_type": "mixtral"}, "model_type cannot be imported; found mixtral; allowed llama, qwen2"),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "found yarn; allowed default, linear, llama3"),
    ("llama", {"rope_scaling": {"type": "dynamic"}}, "found dynamic"),
    ("gemma3_text", {"rope_parameters": {"full_attention": {"rope_type": "longrope"}}}, "found longrope"),
    ("gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}}, "linear; allowed default"),
    ("llama", {"quantization_config": {"bits": 4}}, "quantization_config cannot be imported"),
    ("llama", {"mlp_bias": True}, "mlp_bias cannot be imported; found True; allowed nothing, False"),
    ("llama", {"rope_interleaved": True}, "rope_interleaved cannot be imported"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor cannot be imported"),
    ("llama", {"hidden_act": "relu"}, "hidden_act cannot be imported; found 'relu'; allowed nothing, silu, swish"),
    ("gemma3_text", {"hidden_activation": "gelu"}, "hidden_activation cannot be imported"),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping cannot be imported"),
    ("qwen2", {"use_sliding_window": True}, "sliding windows of qwen2 cannot be imported"),
    ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "sliding windows of qwen3"),
])  # fmt: skip
def test_folder_shape__unsupported(kind: str, change: dict[str, Any], what: str) -> None:
    """What would change the numbers is refused by name."""
    with pytest.raises(Unsupported, match=what):
        folder_shape(config(kind, **change), "config.json")


@pytest.mark.parametrize(("kind", "change", "what"), [
    ("llama", {"hidden_size": None}, "hidden_size is missing or of another type; found nothing; allowed int"),
    ("llama", {"hidden_size": "64"}, "found '64'"), ("llama", {"num_hidden_layers": True}, "found True"),
    ("llama", {"num_attention_heads": 0}, "heads is out of range"), ("llama", {"vocab_size": -1}, "vocabulary is out"),
    ("llama", {"num_key_value_heads": 3}, "do not fit each other"), ("llama", {"rms_norm_eps": 0}, "epsilon is out"),
    ("llama", {"rope_theta": "high"}, "rope_theta is missing or of another type"),
    ("llama", {"rope_scaling": []}, "rope_scaling is missing or of another type"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 0}}, "factor is out of range"),
    ("llama", {"rope_scaling": {"type": 3}}, "type is missing or of another type"),
    ("gemma3_text", {"sliding_window_pattern": 0}, "sliding windows do not fit"),
    ("gemma3_text", {"layer_types": ["full_attention"]}, "layer_types do not fit"),
    ("gemma3_text", {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar is out of range"),
])  # fmt: skip
def test_folder_shape__wrong_numbers(kind: str, change: dict[str, Any], what: str) -> None:
    """Numbers of another type or out of range are refused with file, key and value."""
    with pytest.raises(ModelError, match=what) as caught:
        folder_shape(config(kind, **change), "config.json")

    assert str(caught.value).startswith("config.json")


def test_folder_source__factors_out_of_range(tmp_path: Path) -> None:
    """Factors that would divide by zero are refused."""
    with pytest.raises(ModelError, match="rotary factors are out of range"):
        opened(hf_folder(tmp_path / "hf", rope_scaling={**LLAMA3, "low_freq_factor": 4.0}))
