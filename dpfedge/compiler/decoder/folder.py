# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder's config.json and safetensors in, a decoder's shape and its tensors out; it builds no graph.

Rows of query and key weights already have their rotary pairs (i, i + half) there, so nothing is permuted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from dpfedge.compiler.blocks import Floats
from dpfedge.compiler.decoder.shape import DecoderShape, Rotary, make_shape
from dpfedge.compiler.importer.safetensors import Safetensors
from dpfedge.errors import ModelError, Unsupported

__all__ = ["MODEL_TYPES", "FolderSource", "folder_shape"]

MODEL_TYPES: Mapping[str, str] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}
"""`model_type` of config.json → architecture."""
_HEAD_DIM = {"qwen3": 128, "gemma3": 256}  # the types' own defaults; the others divide width by heads
_ACTIVATIONS = {"silu": ("silu", "swish"), "gelu": ("gelu_pytorch_tanh",)}
_FACTORS = "rope_freqs.weight"
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
_GEMMA_PARTS = {
    **_PARTS, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_LAYER = re.compile(r"model\.layers\.(0|[1-9]\d{0,3})\.(.+)\.(weight|bias)")
_BUFFER = re.compile(r"model\.layers\.\d{1,4}\.self_attn\.rotary_emb\.inv_freq")  # old files keep this table


class _Config:
    """config.json with types checked where they are read."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data, self.where = data, where

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of `key`, null and absent alike being `default`; ModelError for another type or without either."""
        value = self.data.get(key)
        value = default if value is None else value
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            found = "nothing" if value is None else f"{value!r}"[:80]
            raise ModelError(f"{key} is missing or of another type", where=self.where, found=found,
                             allowed=kind.__name__)  # fmt: skip
        return value

    def part(self, key: str) -> _Config | None:
        """The object under `key`, or None."""
        return None if self.data.get(key) is None else _Config(self.get(key, dict), f"{self.where}: {key}")

    def refuse(self, key: str, *allowed: Any) -> None:
        """Unsupported when `key` is there with a value other than null and `allowed`."""
        if (value := self.data.get(key)) is not None and value not in allowed:
            names = ", ".join(map(str, ("nothing", *allowed)))
            raise Unsupported(f"{key} cannot be imported", where=self.where, found=f"{value!r}"[:80], allowed=names)


def folder_shape(data: Mapping[str, Any], where: str) -> DecoderShape:
    """Read and check config.json (`data`, from file `where`); Unsupported names what no graph can be built for."""
    config = _Config(data, where)
    kind = config.get("model_type", str)
    if kind not in MODEL_TYPES:
        names = ", ".join(MODEL_TYPES)
        raise Unsupported("model_type cannot be imported", where=where, found=kind[:80], allowed=names)
    architecture = MODEL_TYPES[kind]
    _refuse(config, architecture)
    width, heads = config.get("hidden_size", int), config.get("num_attention_heads", int)
    head_dim = config.get("head_dim", int, _HEAD_DIM.get(architecture, width // max(heads, 1)))
    layers, scalar = config.get("num_hidden_layers", int), 0.0
    window, local = _windows(config, architecture, layers)
    if architecture == "gemma3":
        scalar = config.get("query_pre_attn_scalar", float, 256.0)
        if not 0 < scalar < math.inf:
            raise ModelError("query_pre_attn_scalar is out of range", where=where, found=scalar, allowed="more than 0")
    return make_shape(
        where, architecture, layers=layers, width=width, hidden=config.get("intermediate_size", int), heads=heads,
        kv_heads=config.get("num_key_value_heads", int, heads), head_dim=head_dim,
        vocabulary=config.get("vocab_size", int), trained_context=config.get("max_position_embeddings", int),
        epsilon=config.get("rms_norm_eps", float, 1e-6), rotary=_rotary(config, _scaling(config)),
        attention_scale=scalar**-0.5 if scalar else None, window=window, local=local,
        local_rotary=_local_rotary(config) if window else None,
        softcap=config.get("final_logit_softcapping", float, 0.0),
    )  # fmt: skip


def _refuse(config: _Config, architecture: str) -> None:
    """What would change the numbers without a place in the graph."""
    config.refuse("quantization_config")
    config.refuse("mlp_bias", False)
    config.refuse("rope_interleaved", False)
    config.refuse("attn_logit_softcapping")
    config.refuse("partial_rotary_factor", 1, 1.0)
    config.refuse("use_bidirectional_attention", False)
    activation = "gelu" if architecture == "gemma3" else "silu"
    key = "hidden_activation" if config.data.get("hidden_activation") is not None else "hidden_act"
    config.refuse(key, *_ACTIVATIONS[activation])


def _windows(config: _Config, architecture: str, layers: int) -> tuple[int, list[bool] | None]:
    """(window, which layers are local or None for the architecture's own period)."""
    types = config.data.get("layer_types")
    if types is not None:
        allowed = ("full_attention", "sliding_attention")
        if not isinstance(types, list) or len(types) != layers or not all(item in allowed for item in types):
            raise ModelError("layer_types do not fit", where=config.where, found=f"{types!r}"[:80],
                             allowed=f"{layers} of {', '.join(allowed)}")  # fmt: skip
    if architecture != "gemma3":
        if config.get("use_sliding_window", bool, False) or "sliding_attention" in (types or ()):
            raise Unsupported(f"sliding windows of {architecture} cannot be imported", where=config.where)
        return 0, None
    window = config.get("sliding_window", int, 4096)
    if types is not None:
        return window, [item == "sliding_attention" for item in types]
    period = config.get("sliding_window_pattern", int, 6)
    if period < 1 or layers > 1024:
        found = f"pattern {period}, {layers} layers"
        raise ModelError("sliding windows do not fit", where=config.where, found=found)
    return window, [(layer + 1) % period != 0 for layer in range(layers)]


def _scaling(config: _Config) -> _Config | None:
    """Where the rotary settings of full layers are: `rope_parameters` of newer files, `rope_scaling` of older ones."""
    newer = config.part("rope_parameters")
    if newer is not None and newer.data.get("full_attention") is not None:
        return newer.part("full_attention")
    return newer or config.part("rope_scaling")


def _kind(scaling: _Config | None, *allowed: str) -> str:
    """Which of `allowed` scalings it is; Unsupported names another one."""
    if scaling is None:
        return "default"
    kind = scaling.get("rope_type", str, scaling.get("type", str, "default"))
    if kind not in allowed:
        raise Unsupported("this kind of rotary scaling cannot be imported", where=scaling.where, found=kind[:80],
                          allowed=", ".join(allowed))  # fmt: skip
    return str(kind)


def _rotary(config: _Config, scaling: _Config | None) -> Rotary:
    base = config.get("rope_theta", float, 10_000.0) if scaling is None else 0.0
    if scaling is not None:
        base = scaling.get("rope_theta", float, config.get("rope_theta", float, 10_000.0))
    if _kind(scaling, "default", "linear", "llama3") != "linear" or scaling is None:
        return Rotary(base)
    factor = scaling.get("factor", float)
    if not 1e-6 < factor < 1e6:
        raise ModelError("factor is out of range", where=scaling.where, found=factor, allowed="a positive number")
    return Rotary(base, 1 / factor)


def _local_rotary(config: _Config) -> Rotary:
    """Local layers have a base of their own and are never scaled."""
    newer = config.part("rope_parameters")
    own = newer.part("sliding_attention") if newer is not None else None
    _kind(own, "default")
    default = config.get("rope_local_base_freq", float, 10_000.0)
    return Rotary(default if own is None else own.get("rope_theta", float, default))


def _factors(config: _Config, shape: DecoderShape) -> Floats | None:
    """What divides each rotary frequency in Llama 3.1 and later (transformers, `_compute_llama3_parameters`)."""
    scaling = _scaling(config)
    if _kind(scaling, "default", "linear", "llama3") != "llama3" or scaling is None:
        return None
    factor, low, high = (scaling.get(key, float) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    old = scaling.get("original_max_position_embeddings", int)
    if not (0 < factor < 1e6 and 0 < low < high < 1e6 and 1 <= old < 1 << 40):
        found = f"factor {factor}, {low} to {high}, {old} positions"
        raise ModelError("rotary factors are out of range", where=scaling.where, found=found)
    exponent = np.arange(0, shape.head_dim, 2, dtype=np.float64) / shape.head_dim
    turns = old * shape.rotary.base**-exponent / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(1 / ((1 - smooth) / factor + smooth), np.float32)


class FolderSource:
    """The tensors of an open folder under llama.cpp's names; it must stay open as long as its arrays are used."""

    def __init__(self, weights: Safetensors, data: Mapping[str, Any], shape: DecoderShape) -> None:
        config = _Config(data, str(weights.path))
        self._weights, self._gemma = weights, shape.architecture == "gemma3"
        self._factors = _factors(config, shape)
        tied = config.get("tie_word_embeddings", bool, self._gemma)
        self._places = {self._title(name): name for name in weights.tensors if not _BUFFER.fullmatch(name)}
        if tied:  # where the file has both, the embedding counts
            self._places.pop("output.weight", None)
        elif "output.weight" not in self._places:
            raise ModelError("tensor lm_head.weight is missing", where=self.where,
                             found="tie_word_embeddings is not set", remedy="export the model again")  # fmt: skip

    def _title(self, name: str) -> str:
        if (match := _LAYER.fullmatch(name)) is None:
            return _TOP.get(name, name)
        part = (_GEMMA_PARTS if self._gemma else _PARTS).get(match[2])
        return name if part is None else f"blk.{int(match[1])}.{part}.{match[3]}"

    @property
    def where(self) -> str:
        """The folder, or its only file."""
        return str(self._weights.path)

    @property
    def names(self) -> Collection[str]:
        """Every tensor of the folder, and the rotary factors its configuration gives."""
        return [*self._places, *([] if self._factors is None else [_FACTORS])]

    def _name(self, name: str) -> str:
        if name not in self._places:
            raise ModelError(f"tensor {name} is missing", where=self.where, remedy="export the model again")
        return self._places[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """The size of a tensor; ModelError when it is missing."""
        if name == _FACTORS and self._factors is not None:
            return (self._factors.size,)
        return self._weights.tensors[self._name(name)].shape

    def kind(self, name: str) -> str:
        """The file's own dtype."""
        return self._weights.tensors[self._name(name)].kind

    def matrix(self, name: str, rows: int, columns: int) -> Floats:
        """Float32 values."""
        return self._weights.tensor(self._name(name), (rows, columns)).values()

    def vector(self, name: str, size: int) -> Floats:
        """Float32 values; Gemma's norms are stored as w and mean 1 + w."""
        if name == _FACTORS and self._factors is not None:
            return self._factors
        values = self._weights.tensor(self._name(name), (size,)).values()
        return values + 1 if self._gemma and name.endswith("norm.weight") else values
