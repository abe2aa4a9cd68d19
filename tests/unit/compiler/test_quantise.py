# SPDX-License-Identifier: Apache-2.0
"""Blocks made from float32: their error, and that onnxruntime computes with the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_graphs import loaded, relative

from dpfedge.compiler.blocks import Blocks
from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.compiler.quantise import int4, int8
from dpfedge.errors import ModelError
from dpfedge.tensors import TensorSpec

RANDOM = np.random.default_rng(3)
MATRIX = RANDOM.standard_normal((48, 96)).astype(np.float32)


def product(x: np.ndarray[Any, Any], blocks: Blocks) -> np.ndarray[Any, Any]:
    """x·matrixᵀ as the CPU backend computes it from the blocks, activations in float32."""
    rows, columns = blocks.shape
    nodes = Nodes("one")
    inputs = ["x", nodes.constant("codes", blocks.codes), nodes.constant("scales", blocks.scales)]
    if blocks.zeros is not None:
        inputs.append(nodes.constant("zeros", blocks.zeros))
    nodes.add("MatMulNBits", inputs, "y", domain=MICROSOFT, K=columns, N=rows, bits=blocks.bits, block_size=32)
    model = nodes.model([TensorSpec("x", "f32", ("n", columns))], [TensorSpec("y", "f32", ("n", rows))])
    return loaded(model).run({"x": x})["y"]


FORMS = {
    "int8": (int8, 0.008),
    "int4": (lambda matrix: int4(matrix), 0.085),
    "int4-asymmetric": (lambda matrix: int4(matrix, symmetric=False), 0.08),
}


@pytest.mark.parametrize("form", FORMS)
def test_quantise__error(form: str) -> None:
    """The rounding error of normal values is what the format allows, and onnxruntime reads the blocks the same way."""
    make, most = FORMS[form]
    blocks = make(MATRIX)
    x = RANDOM.standard_normal((3, 96)).astype(np.float32)

    assert relative(blocks.values(), MATRIX) < most
    assert relative(product(x, blocks), x @ blocks.values().T) < 1e-5


def test_int4__beats_plain_rounding() -> None:
    """The searched scale is better than largest value / 7, and a zero point better than none on shifted values."""
    blocks = MATRIX.reshape(48, 3, 32)
    scales = np.abs(blocks).max(-1, keepdims=True) / 7
    plain = (np.rint(blocks / scales) * scales).reshape(48, 96)

    assert relative(int4(MATRIX).values(), MATRIX) < 0.9 * relative(plain, MATRIX)
    shifted = MATRIX + 1
    assert relative(int4(shifted, symmetric=False).values(), shifted) < 0.8 * relative(int4(shifted).values(), shifted)


@pytest.mark.parametrize("form", FORMS)
def test_quantise__special_blocks(form: str) -> None:
    """Blocks of zeros, of one value and of one sign survive."""
    matrix = np.zeros((4, 32), np.float32)
    matrix[1], matrix[2, 5], matrix[3] = 0.5, -3, -np.linspace(0, 1, 32)
    found = FORMS[form][0](matrix).values()

    assert (found[0] == 0).all()
    assert np.allclose(found[1:3], matrix[1:3], rtol=0.01)
    assert np.allclose(found[3], matrix[3], atol=0.08)


def test_quantise__many_rows() -> None:
    """A matrix that is searched in parts gives the blocks it gives at once."""
    wide = RANDOM.standard_normal((700, 4096)).astype(np.float32)
    found = int4(wide)

    assert (found.codes[600:610] == int4(wide[600:610]).codes).all()


def test_quantise__refuses() -> None:
    """Columns that fill no blocks, and values that are no numbers."""
    with pytest.raises(ModelError, match="no whole blocks; found 33 columns; allowed a multiple of 32"):
        int8(np.zeros((1, 33), np.float32))
    with pytest.raises(ModelError, match="no numbers"):
        int4(np.full((1, 32), np.nan, np.float32))
