# SPDX-License-Identifier: Apache-2.0
"""What a changed form costs: perplexity of decoders, errors of other graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_folder import hf_folder
from made_products import graph

from dpfedge.compiler.families import FAMILIES, Imported, Options
from dpfedge.compiler.formats import Form
from dpfedge.compiler.graph_formats import in_form
from dpfedge.compiler.quality import Quality, compare, decoder_quality, graphs_quality
from dpfedge.errors import ModelError


def decoder(folder: Path, form: str = "keep") -> Imported:
    """A tiny decoder with random weights."""
    files = {"config": folder / "config.json", "tokenizer": folder / "tokenizer.json",
             "weights": folder / "model.safetensors"}  # fmt: skip
    return FAMILIES["decoder"].load(files, Options("fast", 32, Form(form)))


def test_decoder_quality__grows_with_rounding(tmp_path: Path) -> None:
    """The same model costs nothing, 8 bits little, 4 bits more; the figures say of how many tokens."""
    folder = hf_folder(tmp_path / "hf")
    plain = decoder(folder)
    same = decoder_quality(plain, plain, "m")
    eight, four = (decoder_quality(plain, decoder(folder, form), "m") for form in ("int8", "int4"))

    assert (same.loss, same.figures["rel_l2"], same.figures["max_abs"]) == (0, 0, 0)
    assert same.figures["perplexity_before"] == same.figures["perplexity_after"]
    assert same.figures["tokens"] == 32
    assert 0 < eight.figures["rel_l2"] < 0.05 < four.figures["rel_l2"] < 0.6
    assert four.figures["max_abs"] > eight.figures["max_abs"]


def test_decoder_quality__perplexity_of_a_guess(tmp_path: Path) -> None:
    """A head of zeros knows nothing: its perplexity is the size of the vocabulary."""
    plain = decoder(hf_folder(tmp_path / "hf"))
    blank = replace(
        plain, graphs={"llm": type(plain.graphs["llm"]).FromString(plain.graphs["llm"].SerializeToString())}
    )
    for tensor in blank.graphs["llm"].graph.initializer:
        if tensor.name == "head.values":
            tensor.raw_data = bytes(len(tensor.raw_data))

    found = decoder_quality(blank, plain, "m")
    assert found.figures["perplexity_before"] == 96
    assert found.loss == pytest.approx(max(0, found.figures["perplexity_after"] / 96 - 1), abs=0.01)


def test_decoder_quality__tokenizer_of_another_model(tmp_path: Path) -> None:
    """Tokens the model does not have are refused before it runs."""
    plain = decoder(hf_folder(tmp_path / "hf"))
    small = replace(plain, config={**plain.config, "vocabulary": 5})

    with pytest.raises(ModelError, match="the tokenizer does not fit the model"):
        decoder_quality(small, plain, "m")


def test_graphs_quality__worst_output() -> None:
    """The error is that of the changed graphs on golden inputs; unchanged ones are not run."""
    before = Imported({"main": graph(), "other": graph()}, {}, {})
    changed = replace(before, graphs={**before.graphs, "main": in_form(before.graphs["main"], Form("int8"))[0]})
    found = graphs_quality("m", "onnx", before, changed)

    assert 0 < found.loss < 0.05
    assert found.figures["rel_l2"] == found.loss
    assert found.figures["max_abs"] > 0
    assert graphs_quality("m", "onnx", before, before).loss == 0


def test_compare__cases() -> None:
    """Equal, near, other shape, empty, and whole numbers that must not wrap around."""
    one = np.ones(4, np.float32)

    assert compare(one, one) == {"rel_l2": 0.0, "max_abs": 0.0}
    assert compare(one * 1.5, one) == {"rel_l2": 0.5, "max_abs": 0.5}
    assert compare(one[:2], one)["rel_l2"] == 1
    assert compare(one[:0], one[:0])["max_abs"] == 0
    assert compare(np.zeros(1, np.uint8), np.full(1, 255, np.uint8))["max_abs"] == 255


def test_quality__limit() -> None:
    """A loss above the limit stops the compile with every figure, one at it does not."""
    quality = Quality(0.131, {"perplexity_before": 30.4, "perplexity_after": 34.3})
    quality.require(None, "voice.yaml:7", "int4")
    quality.require(0.131, "voice.yaml:7", "int4")

    text = r"voice\.yaml:7: .* int4 costs more than max_loss; found loss 0\.131 \(.*perplexity_after 34\.3\); .* 0"
    with pytest.raises(ModelError, match=text):
        quality.require(0.1, "voice.yaml:7", "int4")
    assert quality.decision("int4")[0] == "quality of int4: loss 0.131"
