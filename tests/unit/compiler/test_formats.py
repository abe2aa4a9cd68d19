# SPDX-License-Identifier: Apache-2.0
"""Which form a target gets for what a recipe asks, and a decoder's tensors in that form."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest
from made_graphs import relative

from dpfedge.compiler.blocks import Blocks, Floats
from dpfedge.compiler.formats import FORMATS, Form, FormedSource, choose
from dpfedge.compiler.quantise import int4, int8
from dpfedge.errors import Unsupported

RANDOM = np.random.default_rng(5)
VALUES = {name: RANDOM.standard_normal((8, 64)).astype(np.float32) for name in ("blk.0.attn_q.weight", "output.weight")}


class Plain:
    """A source of float32 matrices, or of what `blocks` makes of them."""

    where = "here"

    def __init__(self, matrix: Blocks | None = None) -> None:
        self.blocks = matrix

    @property
    def names(self) -> Collection[str]:
        """All names."""
        return VALUES.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """The size."""
        return VALUES[name].shape

    def kind(self, name: str) -> str:
        """One kind."""
        return "F32"

    def matrix(self, name: str, rows: int, columns: int) -> Blocks | Floats:
        """The matrix."""
        return VALUES[name] if self.blocks is None else self.blocks

    def vector(self, name: str, size: int) -> Floats:
        """Ones."""
        return np.ones(size, np.float32)


def matrix(source: FormedSource, name: str = "blk.0.attn_q.weight") -> Blocks | Floats:
    """One of its matrices."""
    return source.matrix(name, 8, 64)


@pytest.mark.parametrize("wanted", ["keep", "int8", "int4", "int4-asymmetric"])
def test_choose__cpu(wanted: str) -> None:
    """Every CPU has whole-number forms."""
    assert choose(wanted, "cpu.aarch64", "armv8.2-a", "x") == Form(wanted)


def test_choose__fp16() -> None:
    """A CPU keeps the weights and says why; a GPU stores them in half."""
    kept = choose("fp16", "cpu.x86_64", "x86-64-v3", "x")

    assert (kept.name, kept.decisions[0][0]) == ("keep", "weights=keep, not fp16")
    assert "fold the cast" in kept.decisions[0][1]
    assert choose("fp16", "gpu.nvidia", "sm_87", "x").element == "FLOAT16"


def test_choose__fp8() -> None:
    """Only architectures with 8-bit floats take them, each in its own encoding; a CPU is refused with the list."""
    assert choose("fp8", "gpu.nvidia", "sm_90", "x").element == "FLOAT8E4M3FN"
    assert choose("fp8", "gpu.amd", "gfx942", "x").key == ("fp8", "FLOAT8E4M3FNUZ")
    with pytest.raises(Unsupported, match=r"models.llm: .*; found x86-64-v3; allowed gfx1200.*sm_89.*; choose int8"):
        choose("fp8", "cpu.x86_64", "x86-64-v3", "models.llm")
    with pytest.raises(Unsupported, match="found sm_87"):
        choose("fp8", "gpu.nvidia", "sm_87", "x")


def test_formed_source__forms() -> None:
    """Matrices come in the form, vectors and sizes as they are; the head stays at 8 bits where layers get 4."""
    for form, bits in (("int8", 8), ("int4", 4), ("int4-asymmetric", 4)):
        source = FormedSource(Plain(), Form(form))
        layer, head = matrix(source), matrix(source, "output.weight")

        assert isinstance(layer, Blocks)
        assert isinstance(head, Blocks)
        assert (layer.bits, head.bits) == (bits, 8)
        assert (layer.zeros is not None) == (form == "int4-asymmetric")
        assert (source.kind("blk.0.attn_q.weight"), source.kind("output.weight")) == (form, "int8")
        assert source.decisions
    assert (source.vector("x", 3) == 1).all()
    assert (source.where, source.shape("output.weight"), sorted(source.names)) == ("here", (8, 64), sorted(VALUES))


def test_formed_source__already_there() -> None:
    """Blocks that have the form stay bit for bit; others are made anew from their values."""
    blocks = int4(VALUES["output.weight"])

    assert matrix(FormedSource(Plain(blocks), Form("int4"))) is blocks
    again = matrix(FormedSource(Plain(blocks), Form("int8")))
    assert isinstance(again, Blocks)
    assert relative(again.values(), blocks.values()) < 0.01
    shifted = Blocks(8, int8(VALUES["output.weight"]).codes, blocks.scales, np.ones_like(blocks.scales))
    assert matrix(FormedSource(Plain(shifted), Form("int8"))) is not shifted


def test_formed_source__floats() -> None:
    """fp16 and fp8 widen blocks, so that the graph has constants to store; keep passes everything on."""
    blocks = int4(VALUES["output.weight"])
    found = matrix(FormedSource(Plain(blocks), Form("fp8", "FLOAT8E4M3FN")))

    assert isinstance(found, np.ndarray)
    assert (found == blocks.values()).all()
    kept = FormedSource(Plain(blocks), Form("keep"))
    assert matrix(kept) is blocks
    assert (kept.kind("output.weight"), kept.decisions) == ("F32", ())


def test_formats__all_have_a_choice() -> None:
    """What a recipe may say is what `choose` knows."""
    assert {choose(name, "gpu.nvidia", "sm_90", "x").name for name in FORMATS} == set(FORMATS)
