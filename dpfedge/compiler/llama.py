# SPDX-License-Identifier: Apache-2.0
"""A Llama-type GGUF in, one ONNX graph out that prefills n tokens or steps by one, with the file's own 4-bit blocks.

Attention is GroupQueryAttention with packed QKV and a KV cache bound in place; matrices are MatMulNBits. A Q4_1 block
has a minimum that MatMulNBits cannot express fast, so what it leaves out, (8d + m)·Σx per block, is added by one small
Gemm. It makes no tokenizer and no sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from dpfedge.compiler.blocks import BLOCK, Blocks, Floats, dequantise, to_blocks, unpermute_rows
from dpfedge.compiler.importer.gguf import Gguf
from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.errors import ModelError, Unsupported
from dpfedge.tensors import TensorSpec

__all__ = ["LlamaShape", "build_llama", "llama_shape", "rotary_angles"]

ACCURACY = {"exact": 0, "fast": 4}
"""MatMulNBits accuracy_level: 0 computes in float32, 4 quantises activations to 8 bits per block."""


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """The sizes of one model."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    trained_context: int
    epsilon: float
    frequency_base: float

    @property
    def kv_width(self) -> int:
        """Elements of all key heads together."""
        return self.kv_heads * self.head_dim


def llama_shape(gguf: Gguf) -> LlamaShape:
    """Read and check the sizes; Unsupported for another architecture."""
    if (architecture := gguf.get("general.architecture", str)) != "llama":
        raise Unsupported("architecture cannot be imported", where=str(gguf.path), found=architecture, allowed="llama")
    width, heads = gguf.get("llama.embedding_length", int), gguf.get("llama.attention.head_count", int)
    head_dim = gguf.get("llama.attention.key_length", int, width // max(heads, 1))
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError("tensor token_embd.weight is missing", where=str(gguf.path))
    shape = LlamaShape(
        layers=gguf.get("llama.block_count", int),
        width=width,
        hidden=gguf.get("llama.feed_forward_length", int),
        heads=heads,
        kv_heads=gguf.get("llama.attention.head_count_kv", int, heads),
        head_dim=head_dim,
        vocabulary=embedding.shape[0],
        trained_context=gguf.get("llama.context_length", int),
        epsilon=gguf.get("llama.attention.layer_norm_rms_epsilon", float),
        frequency_base=gguf.get("llama.rope.freq_base", float, 10_000.0),
    )
    rotary = gguf.get("llama.rope.dimension_count", int, head_dim)
    if rotary != head_dim or "llama.rope.scaling.type" in gguf.metadata or gguf.get("split.count", int, 1) > 1:
        raise Unsupported(
            "partial rotary, scaled rotary and split files cannot be imported",
            where=str(gguf.path),
            found=f"rotary {rotary}",
            allowed=head_dim,
        )
    sizes = (heads, shape.kv_heads, head_dim, width, shape.hidden, shape.layers)
    if min(sizes) < 1 or heads % shape.kv_heads or head_dim % 2 or width % BLOCK or shape.hidden % BLOCK:
        raise ModelError("head counts or widths do not fit each other", where=str(gguf.path), found=shape)
    if not 1 < shape.frequency_base < 1e12 or not 0 < shape.epsilon < 1:
        raise ModelError("rotary base or epsilon is out of range", where=str(gguf.path), found=shape)
    gguf.tensor("blk.0.attn_q.weight", (heads * head_dim, width))  # before anything is sized by head_dim
    return shape


def rotary_angles(shape: LlamaShape, gguf: Gguf, context: int) -> Floats:
    """f32[context, head_dim/2] angles of rotary positions (arXiv 2104.09864; Llama 3's factors where given)."""
    exponent = np.arange(0, shape.head_dim, 2, dtype=np.float64) / shape.head_dim
    frequency = shape.frequency_base**-exponent
    if "rope_freqs.weight" in gguf.tensors:
        frequency = frequency / dequantise(gguf.tensors["rope_freqs.weight"])
    return np.outer(np.arange(context), frequency).astype(np.float32)


def build_llama(gguf: Gguf, *, context: int, mode: str = "fast") -> onnx.ModelProto:
    """The graph `llm` (ports: dpfedge/compiler/GRAPHS.md) for at most `context` tokens; `mode` is `exact` or `fast`."""
    shape = llama_shape(gguf)
    if mode not in ACCURACY:
        raise ModelError("unknown mode", where=str(gguf.path), found=mode, allowed=", ".join(ACCURACY))
    if not 1 <= context <= shape.trained_context:
        raise ModelError(
            "context is out of range", where=str(gguf.path), found=context, allowed=f"1 to {shape.trained_context}"
        )
    return _Llama(gguf, shape, context, ACCURACY[mode]).build()


class _Llama:
    """One graph under construction; hidden states are [n, width] so that Gemm can add the block offsets in place."""

    def __init__(self, gguf: Gguf, shape: LlamaShape, context: int, accuracy: int) -> None:
        self.gguf, self.shape, self.context, self.accuracy = gguf, shape, context, accuracy
        self.nodes = Nodes("llm")
        self.used: set[str] = {"rope_freqs.weight"}

    def build(self) -> onnx.ModelProto:
        nodes, shape = self.nodes, self.shape
        self._cache_ports()
        residual, skip = self._embed(), ""
        for layer in range(shape.layers):
            residual, skip = self._layer(layer, residual, skip)
        last = nodes.constant("last_index", np.array([-1], np.int64))
        residual = nodes.add("Gather", [residual, last], "last_residual", axis=0)
        skip = nodes.add("Gather", [skip, last], "last_skip", axis=0)
        normed, _ = self._norm("output_norm", "output_norm.weight", residual, skip)
        head = "output.weight" if "output.weight" in self.gguf.tensors else "token_embd.weight"
        logits = self._matmul("head", normed, self._matrix(head, shape.vocabulary, shape.width))
        nodes.add(
            "Reshape", [logits, nodes.constant("logits_shape", np.array([1, 1, shape.vocabulary], np.int64))], "logits"
        )
        self._refuse_unused()
        past = [
            TensorSpec(f"past_key_values.{layer}.{part}", "f32", self._cache_dims)
            for layer in range(shape.layers)
            for part in ("key", "value")
        ]
        present = [
            TensorSpec(spec.name.replace("past_key_values", "present"), "f32", self._cache_dims) for spec in past
        ]
        return nodes.model(
            [TensorSpec("input_ids", "i64", (1, "n")), TensorSpec("attention_mask", "i64", (1, "total")), *past],
            [TensorSpec("logits", "f32", (1, 1, shape.vocabulary)), *present],
        )

    @property
    def _cache_dims(self) -> tuple[int, ...]:
        return 1, self.shape.kv_heads, self.context, self.shape.head_dim

    def _cache_ports(self) -> None:
        nodes = self.nodes
        angles = rotary_angles(self.shape, self.gguf, self.context)
        nodes.constant("rotary_cos", np.cos(angles))
        nodes.constant("rotary_sin", np.sin(angles))
        # only the mask's length counts: one sequence has no padding
        total = nodes.add(
            "Cast",
            [nodes.add("Shape", ["attention_mask"], "total_shape", start=1, end=2)],
            "total",
            to=onnx.TensorProto.INT32,
        )
        nodes.add("Sub", [total, nodes.constant("one", np.array([1], np.int32))], "last_position")
        nodes.add("Squeeze", [total], "total_length")
        nodes.constant(
            "packed_shape",
            np.array([1, -1, self.shape.heads * self.shape.head_dim + 2 * self.shape.kv_width], np.int64),
        )
        nodes.constant("rows_shape", np.array([-1, self.shape.heads * self.shape.head_dim], np.int64))

    def _take(self, name: str, shape: tuple[int, ...]) -> Any:
        self.used.add(name)
        return self.gguf.tensor(name, shape)

    def _matrix(self, name: str, rows: int, columns: int) -> Blocks | Floats:
        tensor = self._take(name, (rows, columns))
        return to_blocks(tensor) if tensor.kind.startswith("Q") else dequantise(tensor)

    def _embed(self) -> str:
        nodes, shape = self.nodes, self.shape
        ids = nodes.add("Squeeze", ["input_ids", nodes.constant("axis0", np.array([0], np.int64))], "token_row")
        table = self._matrix("token_embd.weight", shape.vocabulary, shape.width)
        if not isinstance(table, Blocks):
            return nodes.add("Gather", [nodes.constant("embedding", table), ids], "embedded", axis=0)
        if table.offsets is not None:
            values = dequantise(self.gguf.tensors["token_embd.weight"])
            return nodes.add("Gather", [nodes.constant("embedding", values), ids], "embedded", axis=0)
        codes = nodes.constant("embedding_codes", table.codes.reshape(shape.vocabulary, -1))
        inputs = [codes, ids, nodes.constant("embedding_scales", table.scales)]
        if table.zeros is not None:
            inputs.append(nodes.constant("embedding_zeros", table.zeros))
        return nodes.add("GatherBlockQuantized", inputs, "embedded", domain=MICROSOFT, bits=table.bits,
                         block_size=BLOCK, gather_axis=0, quantize_axis=1)  # fmt: skip

    def _norm(self, name: str, weight: str, residual: str, skip: str) -> tuple[str, str]:
        """(normalised, new residual) of residual + skip."""
        nodes, epsilon = self.nodes, self.shape.epsilon
        gamma = nodes.constant(f"{name}.weight", dequantise(self._take(weight, (self.shape.width,))))
        if not skip:
            return nodes.add(
                "SimplifiedLayerNormalization", [residual, gamma], name, axis=-1, epsilon=epsilon
            ), residual
        total = f"{name}.sum"
        nodes.add("SkipSimplifiedLayerNormalization", [residual, skip, gamma], name, outputs=[name, "", "", total],
                  domain=MICROSOFT, epsilon=epsilon)  # fmt: skip
        return name, total

    def _matmul(self, name: str, x: str, matrix: Blocks | Floats) -> str:
        """x·matrixᵀ."""
        nodes = self.nodes
        if not isinstance(matrix, Blocks):
            return nodes.add("MatMul", [x, nodes.constant(f"{name}.values", matrix.T)], name)
        rows, columns = matrix.shape
        inputs = [x, nodes.constant(f"{name}.codes", matrix.codes), nodes.constant(f"{name}.scales", matrix.scales)]
        if matrix.zeros is not None:
            inputs.append(nodes.constant(f"{name}.zeros", matrix.zeros))
        product = name if matrix.offsets is None else f"{name}.product"
        nodes.add(
            "MatMulNBits",
            inputs,
            product,
            domain=MICROSOFT,
            K=columns,
            N=rows,
            bits=matrix.bits,
            block_size=BLOCK,
            accuracy_level=self.accuracy,
        )
        if matrix.offsets is None:
            return name
        offsets = nodes.constant(f"{name}.offsets", matrix.offsets.T)
        return nodes.add("Gemm", [self._sums(name, x, columns), offsets, product], name)

    def _sums(self, name: str, x: str, columns: int) -> str:
        """Σ of x per block: f32[n, columns/32]."""
        nodes = self.nodes
        shape = nodes.constant(f"blocks_{columns}", np.array([-1, columns // BLOCK, BLOCK], np.int64))
        blocks = nodes.add("Reshape", [x, shape], f"{name}.blocks")
        return nodes.add(
            "ReduceSum", [blocks, nodes.constant("axis2", np.array([2], np.int64))], f"{name}.sums", keepdims=0
        )

    def _layer(self, layer: int, residual: str, skip: str) -> tuple[str, str]:
        nodes, shape, base = self.nodes, self.shape, f"blk.{layer}"
        normed, residual = self._norm(f"{base}.attn_norm", f"{base}.attn_norm.weight", residual, skip)
        packed = nodes.add(
            "Reshape", [self._matmul(f"{base}.qkv", normed, self._qkv(base)), "packed_shape"], f"{base}.packed"
        )
        attended = f"{base}.attended"
        cache = [
            f"past_key_values.{layer}.key",
            f"past_key_values.{layer}.value",
            "last_position",
            "total_length",
            "rotary_cos",
            "rotary_sin",
        ]
        nodes.add("GroupQueryAttention", [packed, "", "", *cache], attended, domain=MICROSOFT, num_heads=shape.heads,
                  kv_num_heads=shape.kv_heads, do_rotary=1, rotary_interleaved=0, scale=float(shape.head_dim**-0.5),
                  outputs=[attended, f"present.{layer}.key", f"present.{layer}.value"])  # fmt: skip
        rows = nodes.add("Reshape", [attended, "rows_shape"], f"{base}.rows")
        output = self._matrix(f"{base}.attn_output.weight", shape.width, shape.heads * shape.head_dim)
        skip = self._matmul(f"{base}.attn_output", rows, output)
        normed, residual = self._norm(f"{base}.ffn_norm", f"{base}.ffn_norm.weight", residual, skip)
        return residual, self._feed_forward(base, normed)

    def _qkv(self, base: str) -> Blocks | Floats:
        shape = self.shape
        query = self._matrix(f"{base}.attn_q.weight", shape.heads * shape.head_dim, shape.width)
        key = self._matrix(f"{base}.attn_k.weight", shape.kv_width, shape.width)
        value = self._matrix(f"{base}.attn_v.weight", shape.kv_width, shape.width)
        q_rows, k_rows = (unpermute_rows(heads, shape.head_dim) for heads in (shape.heads, shape.kv_heads))
        if isinstance(query, Blocks) and isinstance(key, Blocks) and isinstance(value, Blocks):
            return Blocks.stack([query.rows(q_rows), key.rows(k_rows), value])
        if isinstance(query, Blocks) or isinstance(key, Blocks) or isinstance(value, Blocks):
            raise Unsupported("query, key and value must have one format", where=f"{self.gguf.path}: {base}")
        return np.concatenate([query[q_rows], key[k_rows], value])

    def _feed_forward(self, base: str, x: str) -> str:
        nodes, shape = self.nodes, self.shape
        gate = self._matrix(f"{base}.ffn_gate.weight", shape.hidden, shape.width)
        up = self._matrix(f"{base}.ffn_up.weight", shape.hidden, shape.width)
        if isinstance(gate, Blocks) and isinstance(up, Blocks):
            both = self._matmul(f"{base}.gate_up", x, Blocks.stack([gate, up]))
        elif not isinstance(gate, Blocks) and not isinstance(up, Blocks):
            both = self._matmul(f"{base}.gate_up", x, np.concatenate([gate, up]))
        else:
            raise Unsupported("gate and up must have one format", where=f"{self.gguf.path}: {base}")
        nodes.add("Split", [both], f"{base}.split", outputs=[f"{base}.gate", f"{base}.up"], axis=-1, num_outputs=2)
        active = nodes.add("QuickGelu", [f"{base}.gate"], f"{base}.active", domain=MICROSOFT, alpha=1.0)
        product = nodes.add("Mul", [active, f"{base}.up"], f"{base}.gated")
        return self._matmul(
            f"{base}.ffn_down", product, self._matrix(f"{base}.ffn_down.weight", shape.width, shape.hidden)
        )

    def _refuse_unused(self) -> None:
        if left := sorted(set(self.gguf.tensors) - self.used):
            raise Unsupported(
                "tensors have no place in a Llama graph", where=str(self.gguf.path), found=", ".join(left[:8])
            )
