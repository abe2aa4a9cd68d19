# SPDX-License-Identifier: Apache-2.0
"""The checked record of a decoder's sizes."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.compiler.decoder.shape import DecoderShape, Rotary, make_shape
from dpfedge.errors import ModelError, Unsupported

SIZES: dict[str, Any] = {
    "layers": 7, "width": 64, "hidden": 96, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocabulary": 96,
    "trained_context": 64, "epsilon": 1e-6, "rotary": Rotary(10_000.0),
}  # fmt: skip


def shape(architecture: str = "llama", **changes: Any) -> DecoderShape:
    """A shape of usual sizes with some changed."""
    return make_shape("model", architecture, **{**SIZES, **changes})


def test_make_shape__defaults() -> None:
    """Scores are scaled by the head's size; without a window no layer is local."""
    assert shape().attention_scale == 0.25
    assert shape(attention_scale=0.5).attention_scale == 0.5
    assert not any(shape("gemma3").local)
    assert shape().habits.activation == "silu"


def test_make_shape__gemma_period() -> None:
    """Five local layers, then a global one, unless the caller says otherwise."""
    assert shape("gemma3", window=8).local == (True,) * 5 + (False, True)
    assert shape("gemma3", window=8, local=[False] * 6 + [True]).local == (False,) * 6 + (True,)


@pytest.mark.parametrize(("changes", "text"), [
    ({"layers": 1025}, "model: layers is out of range; found 1025; allowed 1 to 1024"),
    ({"kv_heads": 3}, "head counts do not fit each other; found heads 4, kv_heads 3"),
    ({"epsilon": float("nan")}, "epsilon is out of range"),
    ({"rotary": Rotary(1e13)}, "rotary base or scale is out of range"),
    ({"local_rotary": Rotary(10.0, 0.0)}, "rotary base or scale is out of range"),
    ({"softcap": -1.0}, "softcap is out of range; found -1.0"),
    ({"window": 1 << 64}, "sliding windows do not fit; found window 18446744073709551616"),
    ({"window": -1}, "sliding windows do not fit"),
    ({"window": 4, "local": [True]}, "window 4, 1 local flags for 7 layers"),
    ({"local": [True] * 7}, "layers are local but no window is given"),
])  # fmt: skip
def test_make_shape__out_of_range(changes: dict[str, Any], text: str) -> None:
    """Numbers that cannot be are refused with what is allowed."""
    with pytest.raises(ModelError, match=text):
        shape(**changes)


def test_make_shape__unsupported() -> None:
    """Architectures and head sizes without a kernel are refused."""
    with pytest.raises(Unsupported, match="found mamba; allowed llama, qwen2, qwen3, gemma3"):
        shape("mamba")
    with pytest.raises(Unsupported, match="attention heads of this size; found 24; allowed a multiple of 16"):
        shape(head_dim=24)
