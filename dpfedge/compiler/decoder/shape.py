# SPDX-License-Identifier: Apache-2.0
"""The sizes and habits of one decoder: what a model file says in, a checked record out; it reads no file.

Each architecture is the same chain of norms, attention and a gated feed-forward; ARCHITECTURES lists where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpfedge.errors import ModelError, Unsupported

__all__ = ["ARCHITECTURES", "Architecture", "DecoderShape", "Rotary", "make_shape"]

WINDOW_MAX = (1 << 31) - 1  # the attention operator counts in 32 bits
LAYERS_MAX = 1024  # the largest published models have 126
WIDTH_MAX = 1 << 18
HEAD_DIM_MAX = 1024
HEAD_DIM_STEP = 16  # GroupQueryAttention's kernels with rotary positions take no other
VOCABULARY_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary positions (arXiv 2104.09864): frequencies base^(−2i/d), positions multiplied by `scale`."""

    base: float
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Architecture:
    """What one architecture does that its numbers do not say."""

    biases: bool = False
    """Query, key and value always have a bias; False: where the file has one."""
    head_norms: bool = False
    """Every head of query and key is normalised before the rotary positions."""
    post_norms: bool = False
    """What attention and feed-forward give is normalised before it is added."""
    activation: str = "silu"
    """`silu`, or `gelu` in its tanh form."""
    scaled_embedding: bool = False
    """Embeddings are multiplied by √width."""
    local_period: int = 0
    """Each layer but every n-th sees a window only, where the model has one; 0: none does."""


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(),
    "qwen2": Architecture(biases=True),
    "qwen3": Architecture(head_norms=True),
    "gemma3": Architecture(head_norms=True, post_norms=True, activation="gelu", scaled_embedding=True, local_period=6),
}
"""Architecture (as GGUF names it) → what is particular to it. SmolLM is llama, Qwen2.5 is qwen2."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes of one model; made and checked by `make_shape`."""

    architecture: str
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    trained_context: int
    epsilon: float
    rotary: Rotary
    attention_scale: float
    window: int
    """Tokens a local layer sees, its own included."""
    local: tuple[bool, ...]
    """Which layers are local."""
    local_rotary: Rotary
    softcap: float
    """Logits are softcap·tanh(logits / softcap); 0: they are not."""

    @property
    def kv_width(self) -> int:
        """Elements of all key heads together."""
        return self.kv_heads * self.head_dim

    @property
    def query_width(self) -> int:
        """Elements of all query heads together."""
        return self.heads * self.head_dim

    @property
    def habits(self) -> Architecture:
        """What is particular to the architecture."""
        return ARCHITECTURES[self.architecture]


def make_shape(
    where: str,
    architecture: str,
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocabulary: int,
    trained_context: int,
    epsilon: float,
    rotary: Rotary,
    attention_scale: float | None = None,
    window: int = 0,
    local: Sequence[bool] | None = None,
    local_rotary: Rotary | None = None,
    softcap: float = 0.0,
) -> DecoderShape:
    """The shape, once every number is in range and fits the others; `where` names the file in errors.

    `attention_scale` None is head_dim^(−½); `local` None follows the architecture's period. Unsupported for an
    architecture that is not in ARCHITECTURES, ModelError for numbers that cannot be.
    """
    habits = ARCHITECTURES.get(architecture)
    if habits is None:
        raise Unsupported(
            "architecture cannot be imported", where=where, found=architecture, allowed=", ".join(ARCHITECTURES)
        )
    sizes = {"layers": layers, "width": width, "hidden": hidden, "heads": heads, "kv_heads": kv_heads,
             "head_dim": head_dim, "vocabulary": vocabulary, "trained_context": trained_context}  # fmt: skip
    _check_sizes(where, sizes)
    _check_numbers(where, epsilon, rotary, local_rotary or rotary, softcap)
    if not 0 <= window <= WINDOW_MAX or (local is not None and len(local) != layers):
        found = f"window {window}, {'no' if local is None else len(local)} local flags for {layers} layers"
        raise ModelError("sliding windows do not fit", where=where, found=found)
    if local is None:
        period = habits.local_period
        local = [bool(window and period) and (layer + 1) % period != 0 for layer in range(layers)]
    elif any(local) and not window:
        raise ModelError("layers are local but no window is given", where=where)
    scale = head_dim**-0.5 if attention_scale is None else attention_scale
    return DecoderShape(
        architecture, **sizes, epsilon=epsilon, rotary=rotary, attention_scale=float(scale), window=window,
        local=tuple(map(bool, local)), local_rotary=local_rotary or rotary, softcap=softcap,
    )  # fmt: skip


def _check_sizes(where: str, sizes: Mapping[str, int]) -> None:
    most = {"layers": LAYERS_MAX, "head_dim": HEAD_DIM_MAX, "vocabulary": VOCABULARY_MAX, "trained_context": 1 << 40}
    for name, value in sizes.items():
        if not 1 <= value <= most.get(name, WIDTH_MAX):
            allowed = f"1 to {most.get(name, WIDTH_MAX)}"
            raise ModelError(f"{name} is out of range", where=where, found=value, allowed=allowed)
    if sizes["heads"] % sizes["kv_heads"]:
        found = f"heads {sizes['heads']}, kv_heads {sizes['kv_heads']}"
        raise ModelError("head counts do not fit each other", where=where, found=found)
    if sizes["head_dim"] % HEAD_DIM_STEP:
        allowed = f"a multiple of {HEAD_DIM_STEP}"
        raise Unsupported("attention heads of this size", where=where, found=sizes["head_dim"], allowed=allowed)


def _check_numbers(where: str, epsilon: float, rotary: Rotary, local: Rotary, softcap: float) -> None:
    if not 0 < epsilon < 1:
        raise ModelError("epsilon is out of range", where=where, found=epsilon, allowed="more than 0, less than 1")
    for part in (rotary, local):
        if not 1 < part.base < 1e12 or not 1e-6 <= part.scale <= 1e6:
            raise ModelError("rotary base or scale is out of range", where=where, found=part)
    if not 0 <= softcap < math.inf:
        raise ModelError("softcap is out of range", where=where, found=softcap, allowed="0 or more")
