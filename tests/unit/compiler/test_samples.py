# SPDX-License-Identifier: Apache-2.0
"""Inputs for golden runs: the same on every call, small, and of each port's kind."""

from __future__ import annotations

import numpy as np

from dpfedge.compiler.samples import samples
from dpfedge.tensors import TensorSpec

CACHE = tuple(TensorSpec(f"past_key_values.0.{part}", "f32", (1, 2, 16, 4)) for part in ("key", "value"))
LLM = (TensorSpec("input_ids", "i64", (1, "n")), TensorSpec("attention_mask", "i64", (1, "total")), *CACHE)


def test_samples__same_on_every_call() -> None:
    """Values depend on graph and seed only; NumPy keeps this stream for ever."""
    vad = (TensorSpec("input", "f32", (1, 576)), TensorSpec("state", "f32", (2, 1, 128)))
    first, again, other = (samples("silero-vad", "vad", vad, {}, {}, seed)[0].feeds["input"] for seed in (0, 0, 1))

    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert abs(float(first[0, 0]) - -0.040222) < 1e-6


def test_samples__language_model() -> None:
    """A prompt and a step into an empty cache, whatever the family is called."""
    prompt, step = samples("decoder", "llm", LLM, {"vocabulary": 96, "bos": 1}, {}, 0)

    assert (prompt.feeds["input_ids"].shape, step.feeds["input_ids"].shape) == ((1, 8), (1, 1))
    assert prompt.feeds["input_ids"][0, 0] == 1
    assert prompt.feeds["input_ids"].max() < 96
    assert (prompt.written, prompt.in_place) == (8, (("present.", "past_key_values."),))
    assert "past_key_values.0.key" not in prompt.feeds


def test_samples__chain() -> None:
    """Later graphs get what earlier ones answered."""
    ports = (TensorSpec("latent", "f32", (1, 4, "n")),)
    latent = np.arange(4 * 20, dtype=np.float32).reshape(1, 4, 20)

    made = samples("piper", "decode", ports, {}, {"encode": {"latent": latent}}, 0)[0].feeds["latent"]

    np.testing.assert_array_equal(made, latent[:, :, :16])


def test_samples__unknown_graph() -> None:
    """Every dtype gets values, batch is 1, and other sizes stand by."""
    ports = (
        TensorSpec("image", "f16", ("batch", 3, "h", "w")), TensorSpec("ids", "i64", ("?0", 4)),
        TensorSpec("flag", "bool", ()), TensorSpec("code", "u8", (2,)),
    )  # fmt: skip
    sample = samples("onnx", "main", ports, {}, {}, 0)[0]

    assert {name: (array.shape, str(array.dtype)) for name, array in sample.feeds.items()} == {
        "image": ((1, 3, 1, 1), "float16"), "ids": ((1, 4), "int64"), "flag": ((), "bool"), "code": ((2,), "uint8"),
    }  # fmt: skip
    others = list(sample.alternatives())
    assert any(other["image"].shape == (1, 3, 64, 64) for other in others)
    assert others[0]["ids"].max() <= 1


def test_samples__a_large_picture_has_print_down_to_its_end() -> None:
    """The last rows of an answer are recorded: over an empty ground nothing but rounding would be compared."""
    [sample] = samples(
        "ppocr-detect", "detect@height-480@width-640", (TensorSpec("image", "u8", (480, 640, 3)),), {}, {}, 0
    )

    image = sample.feeds["image"]
    assert image.shape == (480, 640, 3)
    assert (image[400:] == 40).any()
    assert (image[:96] == 40).any()
