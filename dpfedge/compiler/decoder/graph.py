# SPDX-License-Identifier: Apache-2.0
"""A decoder's tensors in, one ONNX graph out that prefills n tokens or steps by one, with the file's own blocks.

Attention is GroupQueryAttention with a KV cache bound in place. It makes no tokenizer and no sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from dpfedge.compiler.blocks import Blocks
from dpfedge.compiler.decoder.linear import QUIET, Linear, Weight
from dpfedge.compiler.decoder.loud import Loud
from dpfedge.compiler.decoder.rotary import rotary_angles
from dpfedge.compiler.decoder.shape import DecoderShape
from dpfedge.compiler.decoder.source import TensorSource
from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.errors import ModelError, Unsupported
from dpfedge.tensors import TensorSpec

__all__ = ["MODES", "build_decoder"]

MODES: Mapping[str, int] = {"exact": 0, "fast": 4}
"""Mode → MatMulNBits accuracy_level: 0 computes in float32, 4 quantises activations to 8 bits per block."""
_FACTORS = "rope_freqs.weight"


def build_decoder(
    source: TensorSource,
    shape: DecoderShape,
    *,
    context: int,
    mode: str = "fast",
    loud: Loud | None = None,
    spill: Path | None = None,
) -> onnx.ModelProto:
    """The graph `llm` (ports: dpfedge/compiler/GRAPHS.md) for at most `context` tokens; `mode` is `exact` or `fast`.

    What is `loud` is kept out of the rounding that fast mode does. With `spill`, its matrices go to that file (see
    `Nodes`).
    """
    if mode not in MODES:
        raise ModelError("unknown mode", where=source.where, found=mode, allowed=", ".join(MODES))
    if not 1 <= context <= shape.trained_context:
        raise ModelError(
            "context is out of range", where=source.where, found=context, allowed=f"1 to {shape.trained_context}"
        )
    return _Decoder(source, shape, context, MODES[mode], loud or Loud(), spill).build()


class _Decoder:
    """One graph under construction; hidden states are [n, width]."""

    def __init__(
        self, source: TensorSource, shape: DecoderShape, context: int, accuracy: int, loud: Loud, spill: Path | None
    ) -> None:
        self.source, self.shape, self.context, self.loud = source, shape, context, loud
        self.nodes = Nodes("llm", spill)
        self.linear = Linear(self.nodes, accuracy)
        self.used: set[str] = {_FACTORS}
        self.biased = shape.habits.biases or "blk.0.attn_q.bias" in source.names

    def build(self) -> onnx.ModelProto:
        nodes, shape = self.nodes, self.shape
        self._cache_ports()
        residual, skip = self._embed(), ""
        for layer in range(shape.layers):
            residual, skip = self._layer(layer, residual, skip)
        self._head(residual, skip)
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
        nodes, shape = self.nodes, self.shape
        factors = self.source.vector(_FACTORS, shape.head_dim // 2) if _FACTORS in self.source.names else None
        angles = rotary_angles(shape.rotary, shape.head_dim, self.context, factors)
        nodes.constant("rotary_cos", np.cos(angles))
        nodes.constant("rotary_sin", np.sin(angles))
        if any(shape.local):
            angles = rotary_angles(shape.local_rotary, shape.head_dim, self.context)
            nodes.constant("rotary_local_cos", np.cos(angles))
            nodes.constant("rotary_local_sin", np.sin(angles))
        # only the mask's length counts: one sequence has no padding
        total = nodes.add(
            "Cast",
            [nodes.add("Shape", ["attention_mask"], "total_shape", start=1, end=2)],
            "total",
            to=onnx.TensorProto.INT32,
        )
        nodes.add("Sub", [total, nodes.constant("one", np.array([1], np.int32))], "last_position")
        nodes.add("Squeeze", [total], "total_length")
        if shape.habits.head_norms:
            nodes.constant("heads_shape", np.array([-1, shape.head_dim], np.int64))
            nodes.constant("query_shape", np.array([1, -1, shape.query_width], np.int64))
            nodes.constant("key_shape", np.array([1, -1, shape.kv_width], np.int64))
        else:
            nodes.constant("packed_shape", np.array([1, -1, shape.query_width + 2 * shape.kv_width], np.int64))
        nodes.constant("rows_shape", np.array([-1, shape.query_width], np.int64))

    def _weight(self, name: str, rows: int, columns: int, *, biased: bool = False) -> Weight:
        self.used.add(f"{name}.weight")
        matrix = self.source.matrix(f"{name}.weight", rows, columns)
        return Weight(matrix, self._vector(f"{name}.bias", rows) if biased else None)

    def _vector(self, name: str, size: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        self.used.add(name)
        return self.source.vector(name, size)

    def _embed(self) -> str:
        nodes, shape = self.nodes, self.shape
        ids = nodes.add("Squeeze", ["input_ids", nodes.constant("axis0", np.array([0], np.int64))], "token_row")
        table = self._weight("token_embd", shape.vocabulary, shape.width).matrix
        if isinstance(table, Blocks):
            rows = self._gathered_blocks(table, ids)
        else:
            rows = nodes.add("Gather", [nodes.constant("embedding", table), ids], "embedded", axis=0)
        if not shape.habits.scaled_embedding:
            return rows
        scale = nodes.constant("embedding_scale", np.array(shape.width**0.5, np.float32))
        return nodes.add("Mul", [rows, scale], "embedded_scaled")

    def _gathered_blocks(self, table: Blocks, ids: str) -> str:
        """Rows of the embedding, computed from its blocks; the head's product may use the same bytes."""
        nodes, (vocabulary, width) = self.nodes, table.shape
        codes = nodes.constant("embedding_codes", table.codes.reshape(vocabulary, -1))
        inputs = [codes, ids, nodes.constant("embedding_scales", table.scales)]
        if table.zeros is not None:
            inputs.append(nodes.constant("embedding_zeros", table.zeros))
        rows = nodes.add("GatherBlockQuantized", inputs, "embedded", domain=MICROSOFT, bits=table.bits,
                         block_size=table.block, gather_axis=0, quantize_axis=1)  # fmt: skip
        if table.offsets is None:
            return rows
        offsets = nodes.add("Gather", [nodes.constant("embedding_offsets", table.offsets), ids], "offset_rows", axis=0)
        each = nodes.constant("each_block", np.array([-1, width // table.block, table.block], np.int64))
        column = nodes.constant("each_offset", np.array([-1, width // table.block, 1], np.int64))
        parts = [nodes.add("Reshape", [rows, each], "embedded_blocks"),
                 nodes.add("Reshape", [offsets, column], "offset_column")]  # fmt: skip
        whole = nodes.constant("whole_row", np.array([-1, width], np.int64))
        return nodes.add("Reshape", [nodes.add("Add", parts, "embedded_shifted"), whole], "embedded_rows")

    def _plain_norm(self, name: str, x: str, size: int, quiet: Sequence[int] = ()) -> str:
        """RMS norm along the last axis."""
        gamma = self._gamma(name, size, quiet)
        return self.nodes.add("SimplifiedLayerNormalization", [x, gamma], name, axis=-1, epsilon=self.shape.epsilon)

    def _gamma(self, name: str, size: int, quiet: Sequence[int]) -> str:
        values = self._vector(f"{name}.weight", size).copy()
        values[list(quiet)] /= np.float32(QUIET)
        return self.nodes.constant(f"{name}.weight", values)

    def _norm(self, name: str, residual: str, skip: str, quiet: Sequence[int]) -> tuple[str, str]:
        """(normalised, new residual) of residual + skip."""
        if not skip:
            return self._plain_norm(name, residual, self.shape.width, quiet), residual
        nodes, total = self.nodes, f"{name}.sum"
        gamma = self._gamma(name, self.shape.width, quiet)
        nodes.add("SkipSimplifiedLayerNormalization", [residual, skip, gamma], name, outputs=[name, "", "", total],
                  domain=MICROSOFT, epsilon=self.shape.epsilon)  # fmt: skip
        return name, total

    def _layer(self, layer: int, residual: str, skip: str) -> tuple[str, str]:
        shape, base, quiet = self.shape, f"blk.{layer}", self.loud.hidden
        normed, residual = self._norm(f"{base}.attn_norm", residual, skip, quiet)
        skip = self._attention(layer, normed)
        if shape.habits.post_norms:
            skip = self._plain_norm(f"{base}.post_attention_norm", skip, shape.width)
        normed, residual = self._norm(f"{base}.ffn_norm", residual, skip, quiet)
        skip = self._feed_forward(layer, normed)
        if shape.habits.post_norms:
            skip = self._plain_norm(f"{base}.post_ffw_norm", skip, shape.width)
        return residual, skip

    def _attention(self, layer: int, x: str) -> str:
        nodes, shape, base = self.nodes, self.shape, f"blk.{layer}"
        tables = ["rotary_local_cos", "rotary_local_sin"] if shape.local[layer] else ["rotary_cos", "rotary_sin"]
        inputs = [*self._queries_keys_values(layer, x), f"past_key_values.{layer}.key",
                  f"past_key_values.{layer}.value", "last_position", "total_length", *tables]  # fmt: skip
        attended = f"{base}.attended"
        window = {"local_window_size": shape.window} if shape.local[layer] else {}
        nodes.add("GroupQueryAttention", inputs, attended, domain=MICROSOFT, num_heads=shape.heads,
                  kv_num_heads=shape.kv_heads, do_rotary=1, rotary_interleaved=0, scale=shape.attention_scale, **window,
                  outputs=[attended, f"present.{layer}.key", f"present.{layer}.value"])  # fmt: skip
        rows = nodes.add("Reshape", [attended, "rows_shape"], f"{base}.rows")
        output = self._weight(f"{base}.attn_output", shape.width, shape.query_width)
        return self.linear.product(f"{base}.attn_output", rows, output)

    def _queries_keys_values(self, layer: int, x: str) -> list[str]:
        """The first three inputs of GroupQueryAttention: packed, or apart where heads are normalised."""
        nodes, shape, base = self.nodes, self.shape, f"blk.{layer}"
        weights = [
            self._weight(f"{base}.attn_{part}", rows, shape.width, biased=self.biased)
            for part, rows in (("q", shape.query_width), ("k", shape.kv_width), ("v", shape.kv_width))
        ]
        products = self.linear.fused(f"{base}.qkv", x, weights, self.loud.hidden)
        packed = products[0] if len(products) == 1 else nodes.add("Concat", products, f"{base}.qkv", axis=-1)
        if not shape.habits.head_norms:
            return [nodes.add("Reshape", [packed, "packed_shape"], f"{base}.packed"), "", ""]
        sizes = nodes.constant("qkv_sizes", np.array([shape.query_width, shape.kv_width, shape.kv_width], np.int64))
        names = [f"{base}.query", f"{base}.key", f"{base}.value"]
        nodes.add("Split", [packed, sizes], f"{base}.split_heads", outputs=names, axis=-1)
        query = self._normed_heads(f"{base}.attn_q_norm", names[0], "query_shape")
        key = self._normed_heads(f"{base}.attn_k_norm", names[1], "key_shape")
        return [query, key, nodes.add("Reshape", [names[2], "key_shape"], f"{base}.values")]

    def _normed_heads(self, name: str, x: str, shape: str) -> str:
        heads = self.nodes.add("Reshape", [x, "heads_shape"], f"{name}.heads")
        return self.nodes.add("Reshape", [self._plain_norm(name, heads, self.shape.head_dim), shape], f"{name}.rows")

    def _feed_forward(self, layer: int, x: str) -> str:
        nodes, shape, base = self.nodes, self.shape, f"blk.{layer}"
        weights = [self._weight(f"{base}.ffn_{part}", shape.hidden, shape.width) for part in ("gate", "up")]
        products = self.linear.fused(f"{base}.gate_up", x, weights, self.loud.hidden)
        if len(products) == 1:
            gate, up = f"{base}.gate", f"{base}.up"
            nodes.add("Split", products, f"{base}.split", outputs=[gate, up], axis=-1, num_outputs=2)
        else:
            gate, up = products
        if shape.habits.activation == "gelu":
            active = nodes.add("Gelu", [gate], f"{base}.active", approximate="tanh")
        else:
            active = nodes.add("QuickGelu", [gate], f"{base}.active", domain=MICROSOFT, alpha=1.0)
        product = nodes.add("Mul", [active, up], f"{base}.gated")
        weight = self._weight(f"{base}.ffn_down", shape.width, shape.hidden)
        return self.linear.product(f"{base}.ffn_down", product, weight)

    def _head(self, residual: str, skip: str) -> None:
        """Logits behind the last token only."""
        nodes, shape = self.nodes, self.shape
        last = nodes.constant("last_index", np.array([-1], np.int64))
        residual = nodes.add("Gather", [residual, last], "last_residual", axis=0)
        skip = nodes.add("Gather", [skip, last], "last_skip", axis=0)
        normed, _ = self._norm("output_norm", residual, skip, self.loud.head)
        head = "output" if "output.weight" in self.source.names else "token_embd"
        weight = self._weight(head, shape.vocabulary, shape.width)
        logits = self.linear.product("head", normed, weight, self.loud.head)
        if shape.softcap:
            cap = nodes.constant("softcap", np.array(shape.softcap, np.float32))
            share = nodes.add("Tanh", [nodes.add("Div", [logits, cap], "head_share")], "head_bent")
            logits = nodes.add("Mul", [share, cap], "head_capped")
        dims = nodes.constant("logits_shape", np.array([1, 1, shape.vocabulary], np.int64))
        nodes.add("Reshape", [logits, dims], "logits")

    def _refuse_unused(self) -> None:
        if left := sorted(set(self.source.names) - self.used):
            raise Unsupported(
                f"tensors have no place in a {self.shape.architecture} graph",
                where=self.source.where,
                found=", ".join(left[:8]),
            )
