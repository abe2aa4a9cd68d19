# SPDX-License-Identifier: Apache-2.0
"""Tiny decoders of each architecture as GGUF files, a NumPy decoder in float64 to compare with, and a graph's runner.

The reference reads weights with the `gguf` package and follows the architectures' papers; it shares nothing with the
compiler but the names in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize
from made_gguf import METADATA, blocks, gguf_bytes
from made_graphs import loaded

from dpfedge.compiler.decoder import build_decoder
from dpfedge.compiler.decoder.gguf import GgufSource, gguf_shape
from dpfedge.compiler.importer.gguf_parts import open_gguf_parts

Array = np.ndarray[Any, Any]
Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]
VOCABULARY, WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 64, 256, 256, 8, 2, 64, 3
IDS = [1, 5, 9, 33, 2, 51, 60, 4, 4, 17, 40, 22, 63, 8]
CONTEXT = 32


def metadata(architecture: str, **changes: Any) -> dict[str, Any]:
    """What the file says of itself; keys of `changes` without the architecture's name."""
    general = {key: item for key, item in METADATA.items() if not key.startswith("llama.")}
    sizes = {
        "block_count": LAYERS, "context_length": 64, "embedding_length": WIDTH, "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1000.0,
    }  # fmt: skip
    if architecture == "gemma3":
        sizes |= {"attention.sliding_window": 5, "attention.sliding_window_pattern": 2}
    sizes |= changes
    named = {f"{architecture}.{key}": item for key, item in sizes.items() if item is not None}
    return {**general, "general.architecture": architecture, **named}


def tensors(
    architecture: str, kinds: dict[str, str] | str = "F32", *, head: bool = False, bias: bool = False
) -> Tensors:
    """Random weights; `kinds` is one format, or formats by part (`attn_v`), by layer's part (`0.attn_v`) and `rest`."""
    random, made = np.random.default_rng(5), Tensors()
    by_part = {"rest": kinds} if isinstance(kinds, str) else kinds

    def matrix(name: str, rows: int, columns: int) -> None:
        part = name.removeprefix("blk.")
        kind = by_part.get(part, by_part.get(part.split(".")[-1], by_part["rest"]))
        made[f"{name}.weight"] = kind, (rows, columns), blocks(kind, rows, columns, random)

    def vector(name: str, size: int, low: float = 0.5, high: float = 1.5) -> None:
        made[name] = "F32", (size,), random.uniform(low, high, size).astype("<f4").tobytes()

    matrix("token_embd", VOCABULARY, WIDTH)
    if head:
        matrix("output", VOCABULARY, WIDTH)
    vector("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        base = f"blk.{layer}"
        for part, rows in (("q", HEADS * HEAD_DIM), ("k", KV_HEADS * HEAD_DIM), ("v", KV_HEADS * HEAD_DIM)):
            matrix(f"{base}.attn_{part}", rows, WIDTH)
            if bias or architecture == "qwen2":
                vector(f"{base}.attn_{part}.bias", rows, -0.2, 0.2)
        matrix(f"{base}.attn_output", WIDTH, HEADS * HEAD_DIM)
        matrix(f"{base}.ffn_gate", HIDDEN, WIDTH)
        matrix(f"{base}.ffn_up", HIDDEN, WIDTH)
        matrix(f"{base}.ffn_down", WIDTH, HIDDEN)
        norms = ["attn_norm", "ffn_norm"]
        norms += ["post_attention_norm", "post_ffw_norm"] if architecture == "gemma3" else []
        for name in norms:
            vector(f"{base}.{name}.weight", WIDTH)
        for name in ("attn_q_norm", "attn_k_norm") if architecture in ("qwen3", "gemma3") else ():
            vector(f"{base}.{name}.weight", HEAD_DIM)
    return made


def decoder_file(
    folder: Path, architecture: str = "llama", kinds: dict[str, str] | str = "F32", *, head: bool = False,
    bias: bool = False, extra: Tensors | None = None, **changes: Any,
) -> Path:  # fmt: skip
    """Write a tiny decoder to `folder`; `changes` are metadata keys without the architecture's name."""
    path = folder / f"{architecture}.gguf"
    made = {**tensors(architecture, kinds, head=head, bias=bias), **(extra or {})}
    path.write_bytes(gguf_bytes(metadata(architecture, **changes), made))
    return path


def decoder_model(path: Path, *, context: int = CONTEXT, mode: str = "exact") -> Any:
    """The ONNX graph of a file."""
    opened = open_gguf_parts(path)
    shape = gguf_shape(opened)
    return build_decoder(GgufSource(opened, shape), shape, context=context, mode=mode)


class Run:
    """A graph with its cache, as the llm stage holds it."""

    def __init__(self, path: Path, mode: str = "exact", context: int = CONTEXT) -> None:
        self.graph = loaded(decoder_model(path, context=context, mode=mode))
        self.call, self.count = self.graph.bind(), 0
        self.mask = np.ones((1, context), np.int64)
        self.memory = [spec for spec in self.graph.inputs if spec.name.startswith("past_key_values")]
        for spec in self.memory:
            array = np.zeros(spec.dims, np.float32)
            self.call.set_input(spec.name, array)
            self.call.set_output(spec.name.replace("past_key_values", "present"), array)

    def __call__(self, ids: list[int]) -> Array:
        self.count += len(ids)
        self.call.set_input("input_ids", np.array([ids], np.int64))
        self.call.set_input("attention_mask", self.mask[:, : self.count])
        self.call.run()
        return np.asarray(self.call.output("logits")[0, 0].copy())


class Reference:
    """A decoder in float64, all tokens at once."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.kind = reader.fields["general.architecture"].contents()
        self.fields = {name.removeprefix(f"{self.kind}."): field.contents() for name, field in reader.fields.items()}
        self.weights = {
            tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float64) for tensor in reader.tensors
        }
        self.heads = self.fields["attention.head_count"]
        self.kv_heads = self.fields["attention.head_count_kv"]
        self.head_dim = self.fields.get("attention.key_length", self.fields["embedding_length"] // self.heads)

    def __call__(self, ids: list[int]) -> Array:
        """f32[vocabulary] behind the last of `ids`."""
        x = self.weights["token_embd.weight"][ids]
        if self.kind == "gemma3":
            x = x * np.sqrt(x.shape[-1])
        for layer in range(self.fields["block_count"]):
            x = x + self._after(layer, "post_attention_norm", self._attention(layer, x))
            x = x + self._after(layer, "post_ffw_norm", self._gated(layer, x))
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        logits = self._norm(x[-1], "output_norm") @ head.T
        if cap := self.fields.get("final_logit_softcapping"):
            logits = cap * np.tanh(logits / cap)
        return np.asarray(logits, np.float32)

    def _norm(self, x: Array, name: str) -> Array:
        epsilon = self.fields["attention.layer_norm_rms_epsilon"]
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * self.weights[f"{name}.weight"]

    def _after(self, layer: int, name: str, x: Array) -> Array:
        return self._norm(x, f"blk.{layer}.{name}") if f"blk.{layer}.{name}.weight" in self.weights else x

    def _gated(self, layer: int, x: Array) -> Array:
        h = self._norm(x, f"blk.{layer}.ffn_norm")
        gate, up, down = (self.weights[f"blk.{layer}.ffn_{part}.weight"] for part in ("gate", "up", "down"))
        g = h @ gate.T
        bent = np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))
        active = 0.5 * g * (1 + bent) if self.kind == "gemma3" else g / (1 + np.exp(-g))
        return active * (h @ up.T) @ down.T

    def _attention(self, layer: int, x: Array) -> Array:
        base, count = f"blk.{layer}", len(x)
        h = self._norm(x, f"{base}.attn_norm")
        parts = []
        for part, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
            y = h @ self.weights[f"{base}.attn_{part}.weight"].T + self.weights.get(f"{base}.attn_{part}.bias", 0.0)
            y = y.reshape(count, heads, self.head_dim)
            if f"{base}.attn_{part}_norm.weight" in self.weights:
                y = self._norm(y, f"{base}.attn_{part}_norm")
            parts.append(y if part == "v" else self._turned(y, self._local(layer)))
        q, k, v = parts[0], *(np.repeat(part, self.heads // self.kv_heads, 1) for part in parts[1:])
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(self.head_dim)
        back = np.arange(count)[:, None] - np.arange(count)
        seen = (back >= 0) & (back < (self.fields["attention.sliding_window"] if self._local(layer) else count))
        scores = np.where(seen, scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", scores, v).reshape(count, -1) @ self.weights[f"{base}.attn_output.weight"].T

    def _local(self, layer: int) -> bool:
        pattern = self.fields.get("attention.sliding_window_pattern")
        if not self.fields.get("attention.sliding_window") or self.kind != "gemma3":
            return False
        return bool(pattern[layer]) if isinstance(pattern, list) else (layer + 1) % (pattern or 6) != 0

    def _turned(self, x: Array, local: bool) -> Array:
        """With rotary positions: pairs are neighbours in llama files, halves of a head elsewhere."""
        base = self.fields.get("rope.freq_base_swa", 10_000.0) if local else self.fields["rope.freq_base"]
        turn = np.arange(len(x))[:, None] * base ** -(np.arange(0, self.head_dim, 2) / self.head_dim)
        if not local:
            turn = turn / self.fields.get("rope.scaling.factor", 1.0) / self.weights.get("rope_freqs.weight", 1.0)
        turn = np.exp(1j * turn)[:, None]
        if self.kind == "llama":
            return np.ascontiguousarray((x[..., 0::2] + 1j * x[..., 1::2]) * turn).view(np.float64)
        half = self.head_dim // 2
        y = (x[..., :half] + 1j * x[..., half:]) * turn
        return np.concatenate([y.real, y.imag], -1)


def reference_logits(path: Path, ids: list[int]) -> Array:
    """f32[vocabulary] behind the last of `ids`."""
    return Reference(path)(ids)
