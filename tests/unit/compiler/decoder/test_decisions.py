# SPDX-License-Identifier: Apache-2.0
"""What `inspect --targets` says of a decoder."""

from __future__ import annotations

from pathlib import Path

from made_decoder import decoder_file

from dpfedge.compiler.decoder.decisions import decisions
from dpfedge.compiler.decoder.gguf import GgufSource, gguf_shape
from dpfedge.compiler.decoder.loud import Loud
from dpfedge.compiler.importer.gguf import open_gguf

NONE = Loud()


def notes(path: Path, loud: Loud = NONE) -> dict[str, str]:
    """Choice → rule."""
    opened = open_gguf(path)
    shape = gguf_shape(opened)
    return dict(decisions(GgufSource(opened, shape), shape, "fast", 16, loud))


def test_decisions__groups_of_matrices(tmp_path: Path) -> None:
    """Each group's formats are counted, and each has its rule."""
    kinds = {"rest": "Q4_K", "attn_v": "Q6_K", "token_embd": "Q6_K", "0.ffn_up": "Q5_K", "output": "F16"}
    found = notes(decoder_file(tmp_path, "gemma3", kinds, head=True))

    assert found["embedding=Q6_K"] == "the file's own blocks of 16 as 8-bit codes, not rounded again"
    assert "minima in a second product; the file's own blocks of 16 as 8-bit" in found["qkv=6×Q4_K, 3×Q6_K"]
    assert "qkv=apart in 3 of 3 layers" in found
    assert "gate_up=apart in 1 of 3 layers" in found
    assert "float32" in found["head=F16"]
    assert found["window=5"] == "2 of 3 layers see this many tokens"
    assert "cache=f32×16" in found


def test_decisions__tied(tmp_path: Path) -> None:
    """A head that is the embedding is said to be."""
    found = notes(decoder_file(tmp_path, "llama", "Q8_0"))

    assert "head=embedding" in found
    assert not any(choice.startswith("window") for choice in found)


def test_decisions__loud(tmp_path: Path) -> None:
    """What fast mode sets apart is named."""
    found = notes(decoder_file(tmp_path, "llama", "Q8_0"), Loud((5, 70), (1,)))

    assert {"hidden.loud=5,70", "head.loud=1"} <= found.keys()
    assert not any("loud" in choice for choice in notes(decoder_file(tmp_path, "llama", "Q8_0")))
