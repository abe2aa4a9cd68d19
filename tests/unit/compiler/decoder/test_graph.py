# SPDX-License-Identifier: Apache-2.0
"""Decoder graphs against a NumPy reference from the same file, and against transformers' logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_decoder import CONTEXT, HEAD_DIM, IDS, Run, decoder_file, decoder_model, metadata, reference_logits, tensors
from made_gguf import gguf_bytes
from made_graphs import relative

from dpfedge.compiler.importer.ggml import FORMATS
from dpfedge.errors import ModelError, Unsupported

ARCHITECTURES = ["llama", "qwen2", "qwen3", "gemma3"]
GOLDEN = Path(__file__).parents[3] / "golden" / "decoders"
MIXED = {"rest": "Q4_K", "attn_v": "Q6_K", "0.ffn_down": "Q6_K", "ffn_up": "Q5_K", "token_embd": "Q6_K"}


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.gguf")))
def test_build_decoder__golden(name: str) -> None:
    """Prefills of any length, steps and parts give transformers' logits to 1e-5 (tests/golden/make_decoders.py)."""
    with np.load(GOLDEN / "logits.npz") as golden:
        ids, wanted = golden["ids"].tolist(), golden[name]

    def worst(*sizes: int) -> float:
        run, at, found = Run(GOLDEN / f"{name}.gguf", context=len(ids)), 0, []
        for size in sizes:
            at += size
            found.append(relative(run(ids[at - size : at]), wanted[at - 1]))
        return max(found)

    assert max(worst(size) for size in (1, 2, 7, 8, 9, 17, 40)) < 1e-5
    assert worst(*[1] * 40) < 1e-5
    assert worst(5, 11, 1, 1, 13, 9) < 1e-5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_build_decoder__exact(tmp_path: Path, architecture: str) -> None:
    """Exact mode agrees with the reference to 1e-4 for 4-bit blocks with minima."""
    path = decoder_file(tmp_path, architecture, "Q4_K")

    assert relative(Run(path)(IDS), reference_logits(path, IDS)) < 1e-4


@pytest.mark.parametrize("kind", [*FORMATS, "F32", "F16", "BF16"])
def test_build_decoder__formats(tmp_path: Path, kind: str) -> None:
    """Every format of a file, embedding and head included, means the same numbers in the graph."""
    path = decoder_file(tmp_path, "llama", kind, head=True)

    assert relative(Run(path)(IDS), reference_logits(path, IDS)) < 1e-4


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_build_decoder__mixed_formats(tmp_path: Path, architecture: str) -> None:
    """Query, key and value, or gate and up, of different formats become products of their own."""
    path = decoder_file(tmp_path, architecture, MIXED)

    assert relative(Run(path)(IDS), reference_logits(path, IDS)) < 1e-4


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_build_decoder__fast(tmp_path: Path, architecture: str) -> None:
    """Fast mode stays within 0.06."""
    path = decoder_file(tmp_path, architecture, MIXED)

    assert relative(Run(path, "fast")(IDS), reference_logits(path, IDS)) < 0.06


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_build_decoder__steps_equal_prefill(tmp_path: Path, architecture: str) -> None:
    """Prefill in two parts, then steps, gives what one prefill gives; rolling back too."""
    path = decoder_file(tmp_path, architecture, "Q8_0")
    run = Run(path)
    run(IDS[:4])
    run([50, 51, 52])
    run.count = 4
    run(IDS[4:7])
    for token in IDS[7:-1]:
        run([token])

    assert relative(run(IDS[-1:]), reference_logits(path, IDS)) < 1e-4


def test_build_decoder__up_to_the_context(tmp_path: Path) -> None:
    """The last place of the cache is used like the others, far behind the window."""
    path = decoder_file(tmp_path, "gemma3")
    ids = [3 + 7 * index % 61 for index in range(CONTEXT)]
    run = Run(path)
    run(ids[:-1])

    assert relative(run(ids[-1:]), reference_logits(path, ids)) < 1e-4


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize(("kind", "parts"), [("Q4_1", ("head.codes", "embedding_codes")),
                                             ("F16", ("head.values", "embedding"))])  # fmt: skip
def test_build_decoder__tied_output(tmp_path: Path, head: bool, kind: str, parts: tuple[str, str]) -> None:
    """Without output.weight the head has the embedding's bytes, which a package stores once; with it, its own."""
    path = decoder_file(tmp_path, "llama", kind, head=head)
    data = {item.name: item.raw_data for item in decoder_model(path).graph.initializer}

    assert relative(Run(path)(IDS), reference_logits(path, IDS)) < 1e-4
    assert (data[parts[0]] == data[parts[1]]) is not head


def test_build_decoder__llama_with_biases_and_factors(tmp_path: Path) -> None:
    """Biases follow their rows' order; rotary factors divide frequencies."""
    factors = np.linspace(1, 8, HEAD_DIM // 2).astype("<f4").tobytes()
    extra = {"rope_freqs.weight": ("F32", (HEAD_DIM // 2,), factors)}
    path = decoder_file(tmp_path, "llama", "Q5_K", bias=True, extra=extra)

    assert relative(Run(path)(IDS), reference_logits(path, IDS)) < 1e-4


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_build_decoder__linear_scaling(tmp_path: Path, architecture: str) -> None:
    """Positions are divided by the factor, in Gemma's local layers they are not."""
    scaling = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    path = decoder_file(tmp_path, architecture, **scaling)

    assert relative(Run(path)(IDS), reference_logits(path, IDS)) < 1e-4


def test_build_decoder__softcap(tmp_path: Path) -> None:
    """Logits are bent where the file says so."""
    path = decoder_file(tmp_path, "gemma3", final_logit_softcapping=3.0)
    found = Run(path)(IDS)

    assert relative(found, reference_logits(path, IDS)) < 1e-4
    assert np.abs(found).max() <= 3


def test_build_decoder__tensor_without_place(tmp_path: Path) -> None:
    """A tensor the architecture does not have is refused by name."""
    path = decoder_file(
        tmp_path, "llama", extra={"blk.0.attn_q_norm.weight": ("F32", (HEAD_DIM,), bytes(4 * HEAD_DIM))}
    )

    with pytest.raises(Unsupported, match=r"no place in a llama graph; found blk\.0\.attn_q_norm\.weight"):
        decoder_model(path)


@pytest.mark.parametrize(("architecture", "name"), [
    ("llama", "blk.1.ffn_up.weight"), ("qwen2", "blk.2.attn_v.bias"), ("qwen3", "blk.0.attn_k_norm.weight"),
    ("gemma3", "blk.1.post_ffw_norm.weight"), ("gemma3", "output_norm.weight"),
])  # fmt: skip
def test_build_decoder__missing_tensor(tmp_path: Path, architecture: str, name: str) -> None:
    """A missing tensor is named."""
    made = tensors(architecture)
    del made[name]
    path = tmp_path / "cut.gguf"
    path.write_bytes(gguf_bytes(metadata(architecture), made))

    with pytest.raises(ModelError, match=f"tensor {name} is missing".replace(".", r"\.")):
        decoder_model(path)


@pytest.mark.parametrize(("name", "shape", "text"), [
    ("blk.1.attn_output.weight", (256, 256), r"found \(256, 256\); allowed \(256, 512\)"),
    ("blk.2.attn_norm.weight", (128,), r"found \(128,\); allowed \(256,\)"),
    ("blk.0.attn_k.weight", (64, 256), r"found \(64, 256\); allowed \(128, 256\)"),
])  # fmt: skip
def test_build_decoder__wrong_shape(tmp_path: Path, name: str, shape: tuple[int, ...], text: str) -> None:
    """A tensor of another shape is named with both."""
    path = decoder_file(tmp_path, "llama", extra={name: ("F32", shape, bytes(4 * int(np.prod(shape))))})

    with pytest.raises(ModelError, match=f"tensor {name} has another shape; {text}"):
        decoder_model(path)


@pytest.mark.parametrize(("options", "text"), [
    ({"context": 65}, "context is out of range; found 65; allowed 1 to 64"),
    ({"context": 0}, "found 0; allowed 1 to 64"), ({"mode": "rough"}, "found rough; allowed exact, fast"),
])  # fmt: skip
def test_build_decoder__wrong_options(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    """More context than the model was trained on is refused with both numbers; so is an unknown mode."""
    with pytest.raises(ModelError, match=text):
        decoder_model(decoder_file(tmp_path), **options)
