# SPDX-License-Identifier: Apache-2.0
"""Tiny GGUF files made in memory, and a float32 Llama in NumPy to compare graphs with."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.compiler.blocks import dequantise
from dpfedge.compiler.importer.gguf import Gguf
from dpfedge.compiler.llama import llama_shape

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8}
Array = np.ndarray[Any, Any]


def blocks(kind: str, rows: int, columns: int, random: np.random.Generator) -> bytes:
    """Random blocks of one kind for a matrix [rows, columns]."""
    if kind == "F32":
        return (random.standard_normal((rows, columns)) * 0.2).astype("<f4").tobytes()
    if kind == "F16":
        return (random.standard_normal((rows, columns)) * 0.2).astype("<f2").tobytes()
    count = rows * columns // 32
    scale = (random.uniform(0.01, 0.05, (count, 1))).astype("<f2").view(np.uint8)
    if kind == "Q8_0":
        return np.concatenate([scale, random.integers(0, 256, (count, 32), np.uint8)], 1).tobytes()
    codes = random.integers(0, 256, (count, 16), np.uint8)
    if kind == "Q4_0":
        return np.concatenate([scale, codes], 1).tobytes()
    minimum = (-random.uniform(0.1, 0.5, (count, 1))).astype("<f2").view(np.uint8)
    return np.concatenate([scale, minimum, codes], 1).tobytes()


def value(item: Any) -> bytes:
    """One metadata value with its type."""
    if isinstance(item, bool):
        return struct.pack("<IB", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    kind = {str: 8, int: 5}[type(item[0])]
    body = b"".join(text(part) if kind == 8 else struct.pack("<i", part) for part in item)
    return struct.pack("<IIQ", 9, kind, len(item)) + body


def text(item: str) -> bytes:
    """A string as GGUF writes it."""
    data = item.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_bytes(metadata: dict[str, Any], tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A whole file; shapes are given with the fastest dimension last."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + value(item) for key, item in metadata.items())
    offset, body = 0, b""
    for name, (kind, shape, data) in tensors.items():
        dims = tuple(reversed(shape))
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", TYPES[kind], offset)
        body += data + bytes(-len(data) % 32)
        offset = len(body)
    return head + bytes(-len(head) % 32) + body


METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "tiny",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<|end|>", "a", "b", "ab", "Ġ"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
}
VOCABULARY, WIDTH, HIDDEN, KV = 96, 64, 96, 32


def llama_tensors(kind: str = "Q4_1", *, head: bool = False) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The tensors of a two-layer Llama; without `head` its output is tied to the embedding."""
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int, form: str = kind) -> tuple[str, tuple[int, ...], bytes]:
        return form, (rows, columns), blocks(form, rows, columns, random)

    def norm() -> tuple[str, tuple[int, ...], bytes]:
        return "F32", (WIDTH,), random.uniform(0.5, 1.5, WIDTH).astype("<f4").tobytes()

    tensors = {"token_embd.weight": matrix(VOCABULARY, WIDTH, "Q8_0"), "output_norm.weight": norm()}
    if head:
        tensors["output.weight"] = matrix(VOCABULARY, WIDTH, "Q8_0")
    for layer in range(2):
        base = f"blk.{layer}"
        tensors |= {
            f"{base}.attn_norm.weight": norm(),
            f"{base}.ffn_norm.weight": norm(),
            f"{base}.attn_q.weight": matrix(WIDTH, WIDTH),
            f"{base}.attn_k.weight": matrix(KV, WIDTH),
            f"{base}.attn_v.weight": matrix(KV, WIDTH),
            f"{base}.attn_output.weight": matrix(WIDTH, WIDTH),
            f"{base}.ffn_gate.weight": matrix(HIDDEN, WIDTH),
            f"{base}.ffn_up.weight": matrix(HIDDEN, WIDTH),
            f"{base}.ffn_down.weight": matrix(WIDTH, HIDDEN),
        }
    return tensors


def llama_file(folder: Path, kind: str = "Q4_1", *, head: bool = False, **changes: Any) -> Path:
    """Write a tiny Llama to `folder`."""
    path = folder / "tiny.gguf"
    path.write_bytes(gguf_bytes({**METADATA, **changes}, llama_tensors(kind, head=head)))
    return path


def reference_logits(gguf: Gguf, ids: list[int]) -> Array:
    """f32[vocabulary] behind the last of `ids`, in NumPy, with the rotary pairs as llama.cpp's files have them."""
    shape, count = llama_shape(gguf), len(ids)
    weights = {name: dequantise(tensor) for name, tensor in gguf.tensors.items()}
    angles = np.outer(np.arange(count), shape.frequency_base ** -(np.arange(0, shape.head_dim, 2) / shape.head_dim))
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def norm(x: Array, name: str) -> Array:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.epsilon) * weights[name]

    def rotate(x: Array) -> Array:
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return out

    x = weights["token_embd.weight"][ids].astype(np.float64)
    mask = np.triu(np.full((count, count), -np.inf), 1)
    for layer in range(shape.layers):
        base = f"blk.{layer}"
        h = norm(x, f"{base}.attn_norm.weight")
        q, k, v = (
            (h @ weights[f"{base}.attn_{part}.weight"].T).reshape(count, -1, shape.head_dim) for part in ("q", "k", "v")
        )
        k, v = (np.repeat(part, shape.heads // shape.kv_heads, 1) for part in (rotate(k), v))
        scores = np.einsum("ihd,jhd->hij", rotate(q), k) / np.sqrt(shape.head_dim) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", scores, v).reshape(count, -1) @ weights[f"{base}.attn_output.weight"].T
        h = norm(x, f"{base}.ffn_norm.weight")
        gate = h @ weights[f"{base}.ffn_gate.weight"].T
        x = (
            x
            + (gate / (1 + np.exp(-gate)) * (h @ weights[f"{base}.ffn_up.weight"].T))
            @ weights[f"{base}.ffn_down.weight"].T
        )
    head = weights.get("output.weight", weights["token_embd.weight"])
    return np.asarray(norm(x[-1], "output_norm.weight") @ head.T, np.float32)
