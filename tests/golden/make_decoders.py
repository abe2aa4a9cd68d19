# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/decoders: tiny random models of each architecture as GGUF files, with transformers' own logits.

Usage: python tests/golden/make_decoders.py            (needs torch, transformers and gguf; the tests need none of them)

Weights are rounded to float16 before transformers computes with them in float64, so that a file holds the same numbers.
The mapping to GGUF's names and row order is written here once more, apart from the compiler's.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen2Config, Qwen3Config

FOLDER = Path(__file__).parent / "decoders"
VOCABULARY, WIDTH, HIDDEN, TRAINED, TOKENS = 48, 32, 32, 64, 40
SIZES = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": TRAINED, "attn_implementation": "eager",
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip
GEMMA_ROTARY = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
GEMMA_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS: dict[str, tuple[str, Any]] = {
    "llama": ("llama", LlamaConfig(**SIZES, num_hidden_layers=2, head_dim=16, tie_word_embeddings=True)),
    "llama3": (
        "llama",
        LlamaConfig(
            **SIZES,
            num_hidden_layers=2,
            head_dim=16,
            rope_parameters=LLAMA3,
            attention_bias=False,
            tie_word_embeddings=False,
        ),
    ),
    "qwen2": (
        "qwen2",
        Qwen2Config(
            **{**SIZES, "num_attention_heads": 2, "num_key_value_heads": 1},
            num_hidden_layers=2,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        ),
    ),
    "qwen3": ("qwen3", Qwen3Config(**SIZES, num_hidden_layers=2, head_dim=16, tie_word_embeddings=True)),
    "gemma3": (
        "gemma3",
        Gemma3TextConfig(
            **SIZES,
            num_hidden_layers=3,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=8,
            layer_types=GEMMA_LAYERS,
            rope_parameters=GEMMA_ROTARY,
        ),
    ),
}
NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "post_attention_layernorm": "ffn_norm"}  # fmt: skip
GEMMA_NAMES = {**NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip


def gguf_name(name: str, kind: str) -> str:
    """A transformers tensor name as llama.cpp calls it."""
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}  # fmt: skip
    if name in whole:
        return whole[name]
    _, _, layer, *rest, last = name.split(".")
    return f"blk.{layer}.{(GEMMA_NAMES if kind == 'gemma3' else NAMES)['.'.join(rest)]}.{last}"


def paired(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rotary halves (i, i + half) of each head as pairs (2i, 2i + 1), as llama.cpp's llama files have it."""
    parts = rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return parts.swapaxes(1, 2).reshape(rows.shape)


def randomise(model: torch.nn.Module) -> None:
    """Weights large enough that every part of the model shows in the logits, in float16's numbers."""
    for name, weight in model.named_parameters():
        random = np.random.default_rng(zlib.crc32(name.encode()))
        if name.endswith("norm.weight"):
            values = random.uniform(-0.5, 0.5, weight.shape) + (0.0 if "Gemma" in type(model).__name__ else 1.0)
        else:
            values = random.standard_normal(weight.shape) * (0.5 if name.endswith("bias") else weight.shape[-1] ** -0.5)
        weight.data = torch.tensor(values.astype(np.float16).astype(np.float64))


def write(path: Path, kind: str, config: Any, model: torch.nn.Module) -> None:
    """The model as a GGUF file: matrices float16, vectors float32."""
    writer = gguf.GGUFWriter(path, kind)
    writer.add_name(path.stem)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(TRAINED)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(head_dim := getattr(config, "head_dim", None) or WIDTH // config.num_attention_heads)
    writer.add_value_length(head_dim)
    rotary = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rotary["rope_theta"])
    if rotary["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rotary["factor"])
    if kind == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        writer.add_array("gemma3.attention.sliding_window_pattern", [t.startswith("slid") for t in config.layer_types])
        writer.add_float32("gemma3.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])
    vocabulary(writer)
    for name, values in tensors(kind, config, model).items():
        writer.add_tensor(name, values.astype(np.float16 if values.ndim == 2 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vocabulary(writer: gguf.GGUFWriter) -> None:
    """A byte-level vocabulary of letters, enough for llama.cpp to open the file."""
    tokens = ["<pad>", "<s>", "</s>", *[chr(0x21 + index) for index in range(VOCABULARY - 4)], "!!"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (VOCABULARY - 3)])
    writer.add_token_merges(["! !"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages }}")


def tensors(kind: str, config: Any, model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Every weight under llama.cpp's names, in its row order."""
    found = {}
    for name, weight in model.named_parameters():
        values = weight.detach().numpy()
        if kind == "llama" and ".q_proj." in name:
            values = paired(values, config.num_attention_heads)
        if kind == "llama" and ".k_proj." in name:
            values = paired(values, config.num_key_value_heads)
        if kind == "gemma3" and name.endswith("norm.weight"):
            values = values + 1
        found[gguf_name(name, kind)] = values
    inverse = model.model.rotary_emb.inv_freq if config.rope_parameters.get("rope_type") == "llama3" else None
    if inverse is not None:
        plain = config.rope_parameters["rope_theta"] ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
        found["rope_freqs.weight"] = plain / inverse.numpy()
    return found


def main() -> None:
    """Write every model and its logits f32[TOKENS, VOCABULARY] behind each token of `ids`."""
    FOLDER.mkdir(exist_ok=True)
    ids = np.random.default_rng(11).integers(3, VOCABULARY, TOKENS)
    logits = {"ids": ids}
    for name, (kind, config) in MODELS.items():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
        randomise(model)
        with torch.no_grad():
            logits[name] = model(torch.tensor(ids[None])).logits[0].float().numpy()
        write(FOLDER / f"{name}.gguf", kind, config, model)
        print(name, type(model).__name__, logits[name].std())
    np.savez_compressed(FOLDER / "logits.npz", **logits)


if __name__ == "__main__":
    main()
