# SPDX-License-Identifier: Apache-2.0
"""The Llama graph against a float32 reference built from the same blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_gguf import METADATA, gguf_bytes, llama_file, llama_tensors, reference_logits
from made_graphs import loaded, relative

from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.compiler.llama import build_llama, llama_shape
from dpfedge.errors import ModelError, Unsupported

IDS = [1, 5, 9, 33, 2, 71, 90, 4, 4, 17]
CONTEXT = 32


class Run:
    """A graph with its cache, as the llm stage holds it."""

    def __init__(self, path: Path, mode: str) -> None:
        self.graph = loaded(build_llama(open_gguf(path), context=CONTEXT, mode=mode))
        self.call, self.count = self.graph.bind(), 0
        self.mask = np.ones((1, CONTEXT), np.int64)
        self.memory = [spec for spec in self.graph.inputs if spec.name.startswith("past_key_values")]
        for spec in self.memory:
            array = np.zeros(spec.dims, np.float32)
            self.call.set_input(spec.name, array)
            self.call.set_output(spec.name.replace("past_key_values", "present"), array)

    def __call__(self, ids: list[int]) -> np.ndarray:
        self.count += len(ids)
        self.call.set_input("input_ids", np.array([ids], np.int64))
        self.call.set_input("attention_mask", self.mask[:, : self.count])
        self.call.run()
        return self.call.output("logits")[0, 0].copy()


@pytest.mark.parametrize("kind", ["Q4_1", "Q4_0", "Q8_0", "F16"])
def test_build_llama__exact(tmp_path: Path, kind: str) -> None:
    """Exact mode agrees with the reference to 1e-4 for every weight format."""
    path = llama_file(tmp_path, kind)

    assert relative(Run(path, "exact")(IDS), reference_logits(open_gguf(path), IDS)) < 1e-4


def test_build_llama__fast(tmp_path: Path) -> None:
    """Fast mode stays within 0.06."""
    path = llama_file(tmp_path)

    assert relative(Run(path, "fast")(IDS), reference_logits(open_gguf(path), IDS)) < 0.06


def test_build_llama__steps_equal_prefill(tmp_path: Path) -> None:
    """Prefill in two parts, then steps, gives what one prefill gives; rolling back too."""
    path = llama_file(tmp_path)
    run = Run(path, "exact")
    run(IDS[:4])
    run([50, 51, 52])
    run.count = 4
    run(IDS[4:7])
    for token in IDS[7:-1]:
        run([token])

    assert relative(run(IDS[-1:]), reference_logits(open_gguf(path), IDS)) < 1e-4


@pytest.mark.parametrize("head", [False, True])
def test_build_llama__tied_output(tmp_path: Path, head: bool) -> None:
    """Without output.weight the embedding is the output matrix; with it, it is not."""
    path = llama_file(tmp_path, head=head)

    assert relative(Run(path, "exact")(IDS), reference_logits(open_gguf(path), IDS)) < 1e-4


def test_build_llama__other_architecture(tmp_path: Path) -> None:
    """Another architecture and tensors without a place are refused by name."""
    with pytest.raises(Unsupported, match="architecture cannot be imported; found gemma; allowed llama"):
        llama_shape(open_gguf(llama_file(tmp_path, **{"general.architecture": "gemma"})))

    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_bytes(METADATA, {**llama_tensors(), "blk.0.attn_q.bias": ("F32", (64,), bytes(256))}))
    with pytest.raises(Unsupported, match=r"no place in a Llama graph; found blk\.0\.attn_q\.bias"):
        build_llama(open_gguf(path), context=CONTEXT)


@pytest.mark.parametrize("change", [{"llama.rope.dimension_count": 8}, {"split.count": 2}])
def test_llama_shape__unsupported(tmp_path: Path, change: dict[str, int]) -> None:
    """Partial rotary and split files are refused."""
    with pytest.raises(Unsupported, match="cannot be imported"):
        llama_shape(open_gguf(llama_file(tmp_path, **change)))


@pytest.mark.parametrize("change", [
    {"llama.attention.head_count": 0}, {"llama.attention.head_count_kv": 3}, {"llama.rope.freq_base": "high"},
    {"llama.attention.head_count_kv": [2, 2]}, {"llama.block_count": 0},
])  # fmt: skip
def test_llama_shape__wrong_sizes(tmp_path: Path, change: dict[str, Any]) -> None:
    """Sizes that do not fit, or are of another type, are refused before they are used."""
    with pytest.raises((ModelError, Unsupported)):
        llama_shape(open_gguf(llama_file(tmp_path, **change)))


def test_build_llama__missing_tensor(tmp_path: Path) -> None:
    """A missing tensor is named."""
    tensors = llama_tensors()
    del tensors["blk.1.ffn_up.weight"]
    path = tmp_path / "cut.gguf"
    path.write_bytes(gguf_bytes(METADATA, tensors))

    with pytest.raises(ModelError, match=r"tensor blk\.1\.ffn_up\.weight is missing"):
        build_llama(open_gguf(path), context=CONTEXT)


def test_build_llama__context_out_of_range(tmp_path: Path) -> None:
    """More context than the model was trained on is refused with both numbers."""
    with pytest.raises(ModelError, match="found 65; allowed 1 to 64"):
        build_llama(open_gguf(llama_file(tmp_path)), context=65)
