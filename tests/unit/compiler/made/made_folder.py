# SPDX-License-Identifier: Apache-2.0
"""Tiny Hugging Face folders of each model type, and the same weights as a GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from made_gguf import gguf_bytes
from made_safetensors import write_safetensors

Array = np.ndarray[Any, Any]
VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 96, 64, 96, 2, 4, 2, 32
CONFIG: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "rms_norm_eps": 2.0**-17,
    "max_position_embeddings": 64, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 0,
    "eos_token_id": 1,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "llama": {"hidden_act": "silu"},
    "qwen2": {"hidden_act": "silu", "use_sliding_window": False, "sliding_window": 32768},
    "qwen3": {"hidden_act": "silu"},
    "gemma3_text": {
        "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4, "sliding_window_pattern": 2,
        "query_pre_attn_scalar": HEAD_DIM, "rope_local_base_freq": 5000.0, "tie_word_embeddings": True,
    },
}  # fmt: skip
TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [
        {"id": index, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for index, text in enumerate(("<s>", "</s>", "<pad>"))
    ],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {
        "type": "BPE", "merges": [],
        "vocab": {text: index for index, text in enumerate(["<s>", "</s>", "<pad>", *map(chr, range(33, 126))])},
    },
}  # fmt: skip


def config(kind: str, **changes: Any) -> dict[str, Any]:
    """A config.json."""
    return {**CONFIG, "model_type": kind, **OWN[kind], **changes}


def weights(kind: str, *, head: bool = True) -> dict[str, Array]:
    """Random tensors under Hugging Face's names."""
    random = np.random.default_rng(11)

    def matrix(rows: int, columns: int) -> Array:
        return (random.standard_normal((rows, columns)) * 0.15).astype(np.float32)

    def norm(size: int) -> Array:
        return (random.uniform(-0.3, 0.3, size) + (kind != "gemma3_text")).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, WIDTH), "model.norm.weight": norm(WIDTH)}
    if head and kind != "gemma3_text":
        tensors["lm_head.weight"] = matrix(VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        rows = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
        for part, size in rows.items():
            tensors[f"{base}.self_attn.{part}_proj.weight"] = matrix(size, WIDTH)
            if kind == "qwen2":
                tensors[f"{base}.self_attn.{part}_proj.bias"] = matrix(1, size)[0]
        tensors[f"{base}.self_attn.o_proj.weight"] = matrix(WIDTH, HEADS * HEAD_DIM)
        for part in ("gate", "up"):
            tensors[f"{base}.mlp.{part}_proj.weight"] = matrix(HIDDEN, WIDTH)
        tensors[f"{base}.mlp.down_proj.weight"] = matrix(WIDTH, HIDDEN)
        names = ["input_layernorm", "post_attention_layernorm"]
        if kind == "gemma3_text":
            names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        tensors |= {f"{base}.{name}.weight": norm(WIDTH) for name in names}
        if kind in ("qwen3", "gemma3_text"):
            tensors |= {f"{base}.self_attn.{part}_norm.weight": norm(HEAD_DIM) for part in ("q", "k")}
    return tensors


def hf_folder(folder: Path, kind: str = "llama", dtype: str = "F32", *, head: bool = True, **changes: Any) -> Path:
    """Write a whole folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(kind, **changes)))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}", "pad_token": "<pad>"}))
    write_safetensors(folder / "model.safetensors", weights(kind, head=head), dtype)
    return folder


_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
}  # fmt: skip


def _gguf_name(kind: str, name: str) -> str:
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem, _, end = name.rpartition(".")
    if stem in top:
        return f"{top[stem]}.{end}"
    _, _, layer, part = stem.split(".", 3)
    late = {"post_attention_layernorm": "ffn_norm"}
    if kind == "gemma3_text":
        late = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
    return f"blk.{layer}.{ {**_NAMES, **late}[part] }.{end}"


def _as_gguf(kind: str, name: str, array: Array) -> Array:
    """What llama.cpp's converter makes of a tensor: Llama's rotary pairs side by side, Gemma's norms plus 1."""
    if kind == "gemma3_text" and array.ndim == 1:
        return array + 1
    if kind == "llama" and (".q_proj." in name or ".k_proj." in name):
        return array.reshape(-1, 2, HEAD_DIM // 2, WIDTH).swapaxes(1, 2).reshape(array.shape)
    return array


def gguf_file(path: Path, kind: str, *, head: bool = True, tokenizer: bool = False) -> Path:
    """The same model as a GGUF of float32 tensors, on demand with a tokenizer."""
    arch = {"gemma3_text": "gemma3"}.get(kind, kind)
    metadata: dict[str, Any] = {
        "general.architecture": arch, f"{arch}.block_count": LAYERS, f"{arch}.context_length": 64,
        f"{arch}.embedding_length": WIDTH, f"{arch}.feed_forward_length": HIDDEN, f"{arch}.attention.head_count": HEADS,
        f"{arch}.attention.head_count_kv": KV_HEADS, f"{arch}.attention.key_length": HEAD_DIM,
        f"{arch}.attention.layer_norm_rms_epsilon": 2.0**-17, f"{arch}.rope.freq_base": 10000.0,
    }  # fmt: skip
    if kind == "gemma3_text":
        metadata |= {"gemma3.attention.sliding_window": 4, "gemma3.attention.sliding_window_pattern": 2,
                     "gemma3.rope.freq_base_swa": 5000.0}  # fmt: skip
    if tokenizer:
        tokens = [*list(TOKENIZER["model"]["vocab"])[:-1], "!!"]
        metadata |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
                     "tokenizer.ggml.token_type": [3, 3, 3, *[1] * (len(tokens) - 3)],
                     "tokenizer.ggml.merges": ["! !"], "tokenizer.chat_template": "x"}  # fmt: skip
    tensors = {
        _gguf_name(kind, name): ("F32", array.shape, np.ascontiguousarray(_as_gguf(kind, name, array)).tobytes())
        for name, array in weights(kind, head=head).items()
    }
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path
