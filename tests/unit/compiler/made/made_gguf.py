# SPDX-License-Identifier: Apache-2.0
"""Tiny GGUF files made in memory; `made_decoder.py` computes with them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12,
         "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30}  # fmt: skip
# kind → (elements, bytes) of a block, and where its float16 scale and minimum stand
_LAYOUT: dict[str, tuple[int, int, int, int | None]] = {
    "Q4_0": (32, 18, 0, None), "Q4_1": (32, 20, 0, 2), "Q5_0": (32, 22, 0, None), "Q5_1": (32, 24, 0, 2),
    "Q8_0": (32, 34, 0, None), "Q2_K": (256, 84, 80, 82), "Q3_K": (256, 110, 108, None), "Q4_K": (256, 144, 0, 2),
    "Q5_K": (256, 176, 0, 2), "Q6_K": (256, 210, 208, None), "IQ4_NL": (32, 18, 0, None),
    "IQ4_XS": (256, 136, 0, None),
}  # fmt: skip
# the size of a scale that gives weights of about the same size in every kind, and how many of it centre the K formats
_SCALE = {"Q8_0": 0.004, "Q5_0": 0.02, "Q5_1": 0.02, "Q2_K": 0.005, "Q3_K": 0.0015, "Q4_K": 0.0005, "Q5_K": 0.00025,
          "Q6_K": 0.00003, "IQ4_NL": 0.001, "IQ4_XS": 0.00005}  # fmt: skip
_CENTRE = {"Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.0}


def blocks(kind: str, rows: int, columns: int, random: np.random.Generator) -> bytes:
    """Random blocks of one kind for a matrix [rows, columns]."""
    if kind == "F32":
        return (random.standard_normal((rows, columns)) * 0.2).astype("<f4").tobytes()
    if kind == "F16":
        return (random.standard_normal((rows, columns)) * 0.2).astype("<f2").tobytes()
    if kind == "BF16":
        values = (random.standard_normal((rows, columns)) * 0.2).astype("<f4")
        return (values.view("<u4") >> 16).astype("<u2").tobytes()
    elements, size, scale_at, least_at = _LAYOUT[kind]
    count = rows * columns // elements
    data = random.integers(0, 256, (count, size), np.uint8)
    usual = _SCALE.get(kind, 0.03)
    data[:, scale_at : scale_at + 2] = _halves(random.uniform(usual / 2, usual * 2, (count, 1)))
    if least_at is not None:  # the K formats subtract their minimum, the older ones add it
        low, high = (0.8, 1.2) if kind in _CENTRE else (-0.5, -0.1)
        least = random.uniform(low, high, (count, 1)) * _CENTRE.get(kind, 1.0) * (usual if kind in _CENTRE else 1.0)
        data[:, least_at : least_at + 2] = _halves(least)
    return data.tobytes()


def _halves(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return values.astype("<f2").view(np.uint8)


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
    kind = {str: 8, int: 5, float: 6}[type(item[0])]
    body = b"".join(text(part) if kind == 8 else struct.pack("<f" if kind == 6 else "<i", part) for part in item)
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
    """Write a tiny Llama to `folder`; a change to None leaves a key out."""
    path = folder / "tiny.gguf"
    metadata = {key: item for key, item in {**METADATA, **changes}.items() if item is not None}
    path.write_bytes(gguf_bytes(metadata, llama_tensors(kind, head=head)))
    return path
