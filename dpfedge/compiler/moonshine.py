# SPDX-License-Identifier: Apache-2.0
"""Moonshine's two shipped graphs in, three small ones out: `encode`, `decode_first`, `decode_step`.

The shipped decoder is one graph with an If around two copies of the network and hundreds of shape nodes; here the
network is written again from its own int8 weights, with fused QKV, rotary and attention operators.
Source of the architecture: Moonshine, arXiv 2410.15608. It knows the shipped node names and nothing of audio.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.errors import ModelError
from dpfedge.records import dataclass
from dpfedge.tensors import TensorSpec

__all__ = ["MoonshineShape", "build_moonshine"]

EPSILON = 1e-5
FRAMES_MAX = 4096  # rotary positions of the encoder: 98 s of audio in one segment
TOKENS_MAX = 1024  # rotary positions of the decoder: the model was trained on at most 194
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class MoonshineShape:
    """Sizes read from the shipped graphs."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    rotary: int

    @property
    def head_dim(self) -> int:
        """Elements of one head."""
        return self.width // self.heads


@dataclass(frozen=True, slots=True)
class _Matrix:
    """u8 codes [inputs, outputs] with scale and zero point per tensor or per output, and a bias or None."""

    codes: Array
    scale: Array
    zero: Array
    bias: Array | None


class _Source:
    """Finds weights in a shipped graph by the node names its exporter left."""

    def __init__(self, graph: onnx.GraphProto, outer: Iterable[onnx.TensorProto], root: str, title: str) -> None:
        self.root, self.title = root, title
        self._makers = {output: node for node in graph.node for output in node.output}
        self._tensors = {tensor.name: tensor for tensor in (*outer, *graph.initializer)}

    def array(self, *names: str) -> Array:
        """The initialiser of the first name that exists, with or without the exporter's suffix."""
        for name in names:
            for candidate in (name, f"{name}_merged_0"):
                if candidate in self._tensors:
                    return numpy_helper.to_array(self._tensors[candidate])
        raise ModelError(
            "weight is missing", where=self.title, found=", ".join(sorted(self._tensors)[:4]), allowed=names[0]
        )

    def matrix(self, output: str) -> _Matrix:
        """Weights of the quantised product whose result is `root/output`."""
        node = self._makers.get(f"{self.root}/{output}") or self._makers.get(output)
        if node is None or node.op_type not in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
            raise ModelError(
                "no int8 product of this name", where=self.title, found=node and node.op_type, allowed=output
            )
        picks = (1, 3, 5, 6) if node.op_type == "MatMulIntegerToFloat" else (1, 2, 3, 4)
        codes, scale, zero, bias = (node.input[index] if index < len(node.input) else "" for index in picks)
        return _Matrix(self.array(codes), self.array(scale), self.array(zero), self.array(bias) if bias else None)

    def constant_input(self, output: str, index: int) -> Array:
        """Input `index`, an initialiser, of the node whose result is `output`."""
        if output not in self._makers:
            raise ModelError("no node of this name", where=self.title, allowed=output)
        return self.array(self._makers[output].input[index])


def _fused(parts: list[_Matrix]) -> _Matrix:
    """Side by side, each output with its own scale and zero point: the same numbers from one product."""

    def spread(pick: str) -> Array:
        return np.concatenate(
            [np.broadcast_to(getattr(part, pick).reshape(-1), part.codes.shape[1:]) for part in parts]
        )

    return _Matrix(np.concatenate([part.codes for part in parts], axis=1), spread("scale"), spread("zero"), None)


class _Network:
    """Shared pieces of encoder and decoder; hidden states are f32[1, n, width]."""

    def __init__(self, name: str, source: _Source, shape: MoonshineShape, positions: int, frequency: Array) -> None:
        self.nodes, self.source, self.shape = Nodes(name), source, shape
        angles = np.outer(np.arange(positions, dtype=np.float32), frequency.reshape(-1).astype(np.float32))
        self.nodes.constant("rotary_cos", np.cos(angles))
        self.nodes.constant("rotary_sin", np.sin(angles))

    def quantised(self, x: str, name: str) -> tuple[str, str, str]:
        """Dynamic 8-bit form of x: (codes, scale, zero point)."""
        outputs = [f"{name}.u8", f"{name}.scale", f"{name}.zero"]
        self.nodes.add("DynamicQuantizeLinear", [x], f"{name}.quantise", outputs=outputs)
        return outputs[0], outputs[1], outputs[2]

    def product(self, x: tuple[str, str, str], name: str, matrix: _Matrix) -> str:
        """x·matrix + bias in float32."""
        constant = self.nodes.constant
        scale = constant(f"{name}.matrix_scale", matrix.scale)
        zero = constant(f"{name}.matrix_zero", matrix.zero)
        inputs = [x[0], constant(f"{name}.codes", matrix.codes), x[1], scale, x[2], zero]
        if matrix.bias is not None:
            inputs.append(constant(f"{name}.bias", matrix.bias))
        return self.nodes.add("MatMulIntegerToFloat", inputs, name, domain=MICROSOFT)

    def norm(self, name: str, weight: Array, residual: str, skip: str) -> tuple[str, str]:
        """(normalised, new residual) of residual + skip."""
        gamma = self.nodes.constant(f"{name}.weight", weight)
        if not skip:
            return self.nodes.add("LayerNormalization", [residual, gamma], name, axis=-1, epsilon=EPSILON), residual
        # not SkipLayerNormalization: onnxruntime's takes eight times as long as these two together
        total = self.nodes.add("Add", [residual, skip], f"{name}.sum")
        return self.nodes.add("LayerNormalization", [total, gamma], name, axis=-1, epsilon=EPSILON), total

    def rotate(self, x: str, position: str, name: str) -> str:
        """Rotary positions, interleaved pairs, on the first `rotary` elements of each head."""
        inputs = [x, position, "rotary_cos", "rotary_sin"]
        return self.nodes.add("RotaryEmbedding", inputs, name, domain=MICROSOFT, interleaved=1,
                              num_heads=self.shape.heads, rotary_embedding_dim=self.shape.rotary)  # fmt: skip

    def attention(self, name: str, query: str, key: str, value: str, *, past: tuple[str, str] | None = None,
                  present: tuple[str, str] | None = None, causal: bool = False) -> str:  # fmt: skip
        """Multi-head attention; `past` is prepended to keys and values and the sum comes out as `present`."""
        inputs = [query, key, value] if past is None else [query, key, value, "", "", "", *past]
        outputs = [name, *(present or ())]
        return self.nodes.add("MultiHeadAttention", inputs, name, outputs=outputs, domain=MICROSOFT,
                              num_heads=self.shape.heads, unidirectional=int(causal),
                              scale=self.shape.head_dim**-0.5)  # fmt: skip

    def self_attention(self, layer: str, normed: str, position: str, **cache: Any) -> str:
        """QKV in one product, rotary, attention, output product."""
        source, width = self.source, self.shape.width
        fused = _fused([source.matrix(f"{layer}/self_attn/{part}_proj/MatMul_output_0") for part in "qkv"])
        packed = self.product(self.quantised(normed, f"{layer}.qkv_in"), f"{layer}.qkv", fused)
        parts = [f"{layer}.{part}" for part in ("query", "key", "value")]
        split = self.nodes.constant("qkv_sizes", np.array([width] * 3, np.int64))
        self.nodes.add("Split", [packed, split], f"{layer}.split", outputs=parts, axis=-1)
        query, key = (self.rotate(part, position, f"{part}.rotated") for part in parts[:2])
        attended = self.attention(f"{layer}.self", query, key, parts[2], **cache)
        return self.output(f"{layer}/self_attn/o_proj/MatMul_output_0", attended, f"{layer}.self_out")

    def output(self, weight: str, x: str, name: str) -> str:
        """Quantise x and multiply."""
        return self.product(self.quantised(x, f"{name}.in"), name, self.source.matrix(weight))


def build_moonshine(
    encoder: onnx.ModelProto, decoder: onnx.ModelProto
) -> tuple[MoonshineShape, Mapping[str, onnx.ModelProto]]:
    """Sizes, and the graphs by name (ports: dpfedge/compiler/GRAPHS.md)."""
    choice = next((node for node in decoder.graph.node if node.op_type == "If"), None)
    if choice is None:
        raise ModelError("decoder has no If: not a merged Moonshine decoder", where="decoder")
    branches = {attribute.name: attribute.g for attribute in choice.attribute}
    first = _Source(branches["else_branch"], decoder.graph.initializer, "/model/decoder", "decoder, first step")
    step = _Source(branches["then_branch"], decoder.graph.initializer, "/model/decoder", "decoder, later steps")
    audio = _Source(encoder.graph, (), "", "encoder")
    shape = _shape(decoder, first)
    graphs = {
        "encode": _encode(audio, shape),
        "decode_first": _decode(first, shape, step=False),
        "decode_step": _decode(step, shape, step=True),
    }
    return shape, graphs


def _shape(decoder: onnx.ModelProto, source: _Source) -> MoonshineShape:
    keys = [value for value in decoder.graph.input if value.name.endswith("decoder.key")]
    dims = [dim.dim_value for dim in keys[0].type.tensor_type.shape.dim] if keys else []
    if len(dims) != 4 or not dims[1] or not dims[3]:
        raise ModelError("decoder has no key cache of known size", where="decoder", found=dims)
    embedding = source.array("model.decoder.embed_tokens.weight_merged_0_quantized")
    frequency = _frequency(source)
    return MoonshineShape(len(keys), dims[1] * dims[3], dims[1], embedding.shape[0], 2 * frequency.size)


def _frequency(source: _Source) -> Array:
    return source.constant_input(f"{source.root}/rotary_emb/Expand_output_0", 0)


def _encode(source: _Source, shape: MoonshineShape) -> onnx.ModelProto:
    network = _Network("encode", source, shape, FRAMES_MAX, _frequency(source))
    nodes = network.nodes
    residual, skip = _stem(network), ""
    position = nodes.constant("position", np.array([0], np.int64))
    for index in range(shape.layers):
        layer = f"layers.{index}"
        normed, residual = network.norm(
            f"{layer}.input_norm", source.array(f"{layer}.input_layernorm.weight"), residual, skip
        )
        skip = network.self_attention(layer, normed, position)
        normed, residual = network.norm(
            f"{layer}.post_norm", source.array(f"{layer}.post_attention_layernorm.weight"), residual, skip
        )
        hidden = network.output(f"{layer}/mlp/fc1/Add_output_0", normed, f"{layer}.fc1")
        active = nodes.add("Gelu", [hidden], f"{layer}.active", domain=MICROSOFT)
        skip = network.output(f"{layer}/mlp/fc2/Add_output_0", active, f"{layer}.fc2")
    network.norm("features", source.array("layer_norm.weight"), residual, skip)
    return nodes.model([TensorSpec("samples", "f32", (1, "n"))], [TensorSpec("features", "f32", (1, "s", shape.width))])


def _stem(network: _Network) -> str:
    """Three convolutions: f32[1, n] samples at 16 kHz to f32[1, s, width], one frame per 384 samples."""
    nodes, source = network.nodes, network.source
    wave = nodes.add("Unsqueeze", ["samples", nodes.constant("axis1", np.array([1], np.int64))], "wave")
    weight = [
        nodes.constant(f"conv{index}.weight", source.array(f"conv{index}.weight_add_tensor", f"conv{index}.weight"))
        for index in (1, 2, 3)
    ]
    bias = [nodes.constant(f"conv{index}.bias", source.array(f"conv{index}.bias")) for index in (2, 3)]
    first = nodes.add(
        "Tanh", [nodes.add("Conv", [wave, weight[0]], "conv1", strides=[64], kernel_shape=[127])], "conv1.active"
    )
    flat = nodes.add("Reshape", [first, nodes.constant("one_group", np.array([0, 1, -1], np.int64))], "group")
    ones, zeros = (
        nodes.constant("group.one", np.ones(1, np.float32)),
        nodes.constant("group.zero", np.zeros(1, np.float32)),
    )
    normed = nodes.add("InstanceNormalization", [flat, ones, zeros], "group.norm", epsilon=EPSILON)
    back = nodes.add(
        "Reshape", [normed, nodes.constant("channels", np.array([0, network.shape.width, -1], np.int64))], "group.back"
    )
    gain = nodes.constant("group.gain", source.constant_input("/groupnorm/Mul_output_0", 1))
    shift = nodes.constant("group.shift", source.constant_input("/groupnorm/Add_output_0", 1))
    grouped = nodes.add("Add", [nodes.add("Mul", [back, gain], "group.scaled"), shift], "group.out")
    second = nodes.add(
        "Gelu",
        [nodes.add("Conv", [grouped, weight[1], bias[0]], "conv2", strides=[3], kernel_shape=[7])],
        "conv2.active",
        domain=MICROSOFT,
    )
    third = nodes.add(
        "Gelu",
        [nodes.add("Conv", [second, weight[2], bias[1]], "conv3", strides=[2], kernel_shape=[3])],
        "conv3.active",
        domain=MICROSOFT,
    )
    return nodes.add("Transpose", [third], "frames", perm=[0, 2, 1])


def _decode(source: _Source, shape: MoonshineShape, *, step: bool) -> onnx.ModelProto:
    network = _Network("decode_step" if step else "decode_first", source, shape, TOKENS_MAX, _frequency(source))
    nodes, tokens = network.nodes, "last" if step else "tokens"
    position = (
        nodes.constant("position", np.array([0], np.int64))
        if not step
        else nodes.add("Shape", ["past.0.key"], "position", start=2, end=3)
    )
    features = ("", "", "") if step else network.quantised("features", "features")
    residual, skip = _embed(network, tokens), ""
    for index in range(shape.layers):
        layer = f"layers.{index}"
        weights = f"model.decoder.{layer}"
        normed, residual = network.norm(
            f"{layer}.input_norm", source.array(f"{weights}.input_layernorm.weight"), residual, skip
        )
        present = (f"present.{index}.key", f"present.{index}.value")
        past = (f"past.{index}.key", f"past.{index}.value") if step else None
        skip = network.self_attention(layer, normed, position, past=past, present=present, causal=not step)
        normed, residual = network.norm(
            f"{layer}.post_norm", source.array(f"{weights}.post_attention_layernorm.weight"), residual, skip
        )
        query = network.output(f"{layer}/encoder_attn/q_proj/MatMul_output_0", normed, f"{layer}.cross_query")
        cross = [f"cross.{index}.key", f"cross.{index}.value"]
        if not step:
            _cross(network, layer, features, cross)
        attended = network.attention(f"{layer}.cross", query, *cross)
        skip = network.output(f"{layer}/encoder_attn/o_proj/MatMul_output_0", attended, f"{layer}.cross_out")
        normed, residual = network.norm(
            f"{layer}.final_norm", source.array(f"{weights}.final_layernorm.weight"), residual, skip
        )
        skip = _gated(network, layer, normed)
    normed, _ = network.norm("norm", source.array("model.decoder.norm.weight"), residual, skip)
    logits = network.product(network.quantised(normed, "head.in"), "logits", source.matrix("logits"))
    nodes.add("ArgMax", [logits], "token", axis=-1, keepdims=0)
    return nodes.model(*_decode_ports(shape, step))


def _embed(network: _Network, tokens: str) -> str:
    nodes, name = network.nodes, "model.decoder.embed_tokens.weight_merged_0"
    codes, scale, zero = (network.source.array(f"{name}_{part}") for part in ("quantized", "scale", "zero_point"))
    rows = nodes.add("Gather", [nodes.constant("embedding.codes", codes), tokens], "embedding.rows", axis=0)
    return nodes.add(
        "DequantizeLinear",
        [rows, nodes.constant("embedding.scale", scale), nodes.constant("embedding.zero", zero)],
        "embedded",
    )


def _cross(network: _Network, layer: str, features: tuple[str, str, str], outputs: list[str]) -> None:
    """Keys and values of the audio, f32[1, heads, s, head_dim]; computed once per segment."""
    nodes, shape = network.nodes, network.shape
    fused = _fused([network.source.matrix(f"{layer}/encoder_attn/{part}_proj/MatMul_output_0") for part in "kv"])
    packed = network.product(features, f"{layer}.cross_kv", fused)
    parts = [f"{layer}.cross_{part}" for part in ("keys", "values")]
    nodes.add("Split", [packed], f"{layer}.cross_split", outputs=parts, axis=-1, num_outputs=2)
    split = nodes.constant("head_shape", np.array([1, -1, shape.heads, shape.head_dim], np.int64))
    for part, output in zip(parts, outputs, strict=True):
        nodes.add("Transpose", [nodes.add("Reshape", [part, split], f"{part}.heads")], output, perm=[0, 2, 1, 3])


def _gated(network: _Network, layer: str, normed: str) -> str:
    """fc1 gives value and gate; value·SiLU(gate) goes to fc2."""
    nodes = network.nodes
    both = network.output(f"{layer}/mlp/fc1/Add_output_0", normed, f"{layer}.fc1")
    nodes.add("Split", [both], f"{layer}.fc1_split", outputs=[f"{layer}.up", f"{layer}.gate"], axis=-1, num_outputs=2)
    active = nodes.add("QuickGelu", [f"{layer}.gate"], f"{layer}.active", domain=MICROSOFT, alpha=1.0)
    gated = nodes.add("Mul", [active, f"{layer}.up"], f"{layer}.gated")
    return network.output(f"{layer}/mlp/fc2/Add_output_0", gated, f"{layer}.fc2")


def _decode_ports(shape: MoonshineShape, step: bool) -> tuple[list[TensorSpec], list[TensorSpec]]:
    def caches(prefix: str, length: str) -> list[TensorSpec]:
        dims = (1, shape.heads, length, shape.head_dim)
        return [
            TensorSpec(f"{prefix}.{layer}.{part}", "f32", dims)
            for layer in range(shape.layers)
            for part in ("key", "value")
        ]

    if step:
        inputs = [TensorSpec("last", "i64", (1, 1)), *caches("past", "p"), *caches("cross", "s")]
        return inputs, [TensorSpec("token", "i64", (1, 1)), *caches("present", "p1")]
    inputs = [TensorSpec("tokens", "i64", (1, "t")), TensorSpec("features", "f32", (1, "s", shape.width))]
    return inputs, [TensorSpec("token", "i64", (1, "t")), *caches("present", "t"), *caches("cross", "s")]
