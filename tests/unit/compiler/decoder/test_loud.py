# SPDX-License-Identifier: Apache-2.0
"""Loud channels found by running a graph, and what a graph does with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_decoder import CONTEXT, IDS, LAYERS, WIDTH, decoder_file, metadata, reference_logits, tensors
from made_gguf import gguf_bytes
from made_graphs import loaded, relative

from dpfedge.compiler.decoder import build_decoder
from dpfedge.compiler.decoder.gguf import GgufSource, gguf_shape
from dpfedge.compiler.decoder.loud import Loud, listen, text_ids
from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.compiler.reference import Reference
from dpfedge.tensors import TensorSpec

CHANNELS = (5, 70)
KINDS = {"rest": "Q4_K", "attn_v": "Q6_K", "0.ffn_down": "Q6_K", "ffn_up": "Q5_K", "token_embd": "Q6_K"}


def noisy(folder: Path, kinds: dict[str, str] | str = "Q4_K", architecture: str = "llama") -> Path:
    """A decoder whose norms make two channels thirty times as large as the others."""
    made = tensors(architecture, kinds)
    for name in [f"blk.{layer}.{part}_norm.weight" for layer in range(LAYERS) for part in ("attn", "ffn")]:
        gamma = np.frombuffer(made[name][2], "<f4").copy()
        gamma[list(CHANNELS)] = 30
        made[name] = (*made[name][:2], gamma.tobytes())
    path = folder / "noisy.gguf"
    path.write_bytes(gguf_bytes(metadata(architecture), made))
    return path


def built(path: Path, mode: str, loud: Loud | None, spill: Path | None = None) -> onnx.ModelProto:
    """The graph of a file."""
    opened = open_gguf(path)
    shape = gguf_shape(opened)
    return build_decoder(GgufSource(opened, shape), shape, context=CONTEXT, mode=mode, loud=loud, spill=spill)


def heard(path: Path) -> Loud:
    """What `listen` finds in a file."""
    return listen(lambda spill: built(path, "exact", None, spill), gguf_shape(open_gguf(path)), IDS)


def feeds(inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """IDS, from nothing."""
    caches = {spec.name: np.zeros([int(dim) for dim in spec.dims], np.float32) for spec in inputs[2:]}
    return caches | {"input_ids": np.array([IDS], np.int64), "attention_mask": np.ones((1, len(IDS)), np.int64)}


def logits(model: onnx.ModelProto) -> Any:
    """Behind IDS, as this CPU's target computes them."""
    run = loaded(model)
    return run.run(feeds(run.inputs))["logits"].reshape(-1)


def rounded(model: onnx.ModelProto) -> Any:
    """The same with activations in 8 bits."""
    run = Reference("llm", model, asked=True)
    return run.run(feeds(run.inputs))["logits"].reshape(-1)


def test_listen__loud_channels(tmp_path: Path) -> None:
    """The channels that norms make loud are found."""
    found = heard(noisy(tmp_path))

    assert set(found.hidden[:2]) == set(CHANNELS)


def test_listen__is_repeatable(tmp_path: Path) -> None:
    """Two runs hear the same."""
    path = noisy(tmp_path)

    assert heard(path) == heard(path)


def test_listen__one_token(tmp_path: Path) -> None:
    """Where there is nothing to hear but the first token, nothing is loud."""
    assert listen(lambda _: pytest.fail("built"), gguf_shape(open_gguf(noisy(tmp_path))), [1]) == Loud()


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
@pytest.mark.parametrize("kinds", ["Q4_1", "Q8_0", "F16", KINDS])
def test_build_decoder__loud_is_exact(tmp_path: Path, architecture: str, kinds: dict[str, str] | str) -> None:
    """What is set apart is added again, in every format: exact mode stays exact."""
    path = decoder_file(tmp_path, architecture, kinds)
    loud = Loud((3, 100, WIDTH - 1), (0, 64))

    assert relative(logits(built(path, "exact", loud)), reference_logits(path, IDS)) < 1e-4


def test_build_decoder__loud_is_closer(tmp_path: Path) -> None:
    """Where activations are rounded to 8 bits, fast mode comes closer to the reference with loud channels apart."""
    path = noisy(tmp_path)
    wanted = reference_logits(path, IDS)
    plain, apart = (relative(rounded(built(path, "fast", loud)), wanted) for loud in (None, heard(path)))

    assert apart < 0.7 * plain


def test_text_ids__fit(tmp_path: Path) -> None:
    """Ids are of the vocabulary, as many as fit the context."""
    from dpfedge.compiler.decoder.opened import open_decoder

    opened = open_decoder({"model": decoder_file(tmp_path, "llama", "Q4_1")})
    ids = text_ids(opened.assets["tokenizer.json"], 8, opened.shape.vocabulary)

    assert len(ids) <= 8
    assert all(token < opened.shape.vocabulary for token in ids)
