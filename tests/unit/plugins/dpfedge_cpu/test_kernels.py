# SPDX-License-Identifier: Apache-2.0
"""Our own products with blocks: each form this CPU has beside the same numbers in float64, and onnxruntime's use."""

from __future__ import annotations

import ctypes
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dpfedge_cpu.kernels
import numpy as np
import onnx
import pytest
from dpfedge_cpu.kernels import DOMAIN, library, register
from dpfedge_cpu.session import mapped_errors, runtime, session_options
from onnx import helper, numpy_helper

from dpfedge.backend.api import Budget
from dpfedge.errors import BackendError, Unavailable

PLUGIN = Path(__file__).parents[4] / "plugins" / "dpfedge-cpu"
FORMS = ("avx512-vnni", "avx2", "dotprod", "neon", "plain")
Array = np.ndarray[Any, Any]


class Matrix(ctypes.Structure):
    _fields_ = (
        ("codes", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("ends", ctypes.c_void_p), ("bias", ctypes.c_void_p),
        ("outputs", ctypes.c_size_t), ("blocks", ctypes.c_size_t), ("bits", ctypes.c_uint), ("halves", ctypes.c_bool),
        ("fine", ctypes.c_bool),
    )  # fmt: skip


class Rounded(ctypes.Structure):
    _fields_ = (
        ("words", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("sums", ctypes.c_void_p),
        ("tokens", ctypes.c_size_t), ("chunks", ctypes.c_size_t), ("ends", ctypes.c_size_t),
    )  # fmt: skip


class Form(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("round", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_float,
                                   ctypes.POINTER(Rounded), ctypes.c_size_t, ctypes.c_size_t)),
        ("multiply", ctypes.CFUNCTYPE(None, ctypes.POINTER(Matrix), ctypes.POINTER(Rounded), ctypes.c_size_t,
                                      ctypes.c_size_t, ctypes.c_void_p)),
    )  # fmt: skip


def forms() -> Iterator[Any]:
    kernels = ctypes.CDLL(str(library()))
    kernels.dpf_blocks_named.restype = ctypes.POINTER(Form)
    for name in FORMS:
        if found := kernels.dpf_blocks_named(name.encode()):
            yield pytest.param(found.contents, id=name)


FOUND = tuple(forms())


def test_forms__are_all_tried() -> None:
    """One under another name would be left out of every test here in silence; plain C is for each CPU."""
    told = [re.findall(r'^const dpf_blocks_form \w+ = {"([^"]+)"', path.read_text(), re.MULTILINE) for path in
            (PLUGIN / "kernels").glob("*.c")]  # fmt: skip
    assert sorted(name for names in told for name in names) == sorted(FORMS)
    assert FOUND[-1].id == "plain"


def made(rng: np.random.Generator, outputs: int, blocks: int, bits: int, *, halves: bool) -> tuple[Array, Array, Array]:
    """Codes, scales and ends."""
    codes = rng.integers(0, 256, (outputs, blocks, 4 * bits), np.uint8)
    kind = np.float16 if halves else np.float32
    return codes, rng.normal(0, 0.1, (outputs, blocks)).astype(kind), rng.normal(0, 1, (outputs, blocks)).astype(kind)


def values(codes: Array, scales: Array, ends: Array | None) -> Array:
    """f64[outputs, columns] of what a matrix means."""
    if codes.shape[2] == 32:
        numbers = codes.astype(np.float64) - 128
    else:
        numbers = np.stack([codes & 15, codes >> 4], axis=3).reshape(*codes.shape[:2], 32).astype(np.float64)
    found = numbers.reshape(*scales.shape, -1) * scales.astype(np.float64)[..., None]
    if ends is not None:
        found += ends.astype(np.float64)[..., None]
    return np.asarray(found.reshape(len(codes), -1))


def product(form: Any, x: Array, codes: Array, scales: Array, ends: Array | None, bias: Array | None = None) -> Array:
    """y of one form, computed in two strips of outputs."""
    tokens, (outputs, blocks, size) = len(x), codes.shape
    bits, chunks, padded = size // 4, math.ceil(blocks / (512 // (size * 8))), math.ceil(blocks / 16) * 16
    words = np.full(tokens * chunks * (512 // size) * 4, 77, np.int16)  # whatever lies there must not count
    lanes, sums = np.full(tokens * chunks * 16, np.nan, np.float32), np.full(tokens * padded, np.nan, np.float32)
    rounded = Rounded(words.ctypes.data, lanes.ctypes.data, sums.ctypes.data, tokens, chunks, padded)
    matrix = Matrix(
        codes.ctypes.data, scales.ctypes.data, None if ends is None else ends.ctypes.data,
        None if bias is None else bias.ctypes.data, outputs, blocks, bits, scales.dtype == np.float16,
        scales.shape[1] == 2 * blocks,
    )  # fmt: skip
    y = np.full((tokens, outputs), 77, np.float32)
    form.round(x.ctypes.data, x.shape[1], bits, 1, rounded, 0, tokens // 2)
    form.round(x.ctypes.data, x.shape[1], bits, 1, rounded, tokens // 2, tokens)
    form.multiply(matrix, rounded, 0, outputs // 2, y.ctypes.data)
    form.multiply(matrix, rounded, outputs // 2, outputs, y.ctypes.data)
    return y


def off(found: Array, x: Array, matrix: tuple[Array, Array, Array | None], bias: Array | float = 0) -> float:
    """The largest error, of the sum of the sizes of what was added up."""
    codes, scales, ends = matrix
    wide = x.astype(np.float64)
    size = np.abs(values(codes, scales, None)) + (0 if ends is None else np.abs(values(codes, 0 * scales, ends)))
    return float((np.abs(found - wide @ values(*matrix).T - bias) / (np.abs(wide) @ size.T + np.abs(bias))).max())


@pytest.mark.parametrize("form", FOUND)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("halves", [True, False])
def test_multiply__every_size_of_a_tile(form: Any, bits: int, halves: bool) -> None:
    """Tokens, outputs and blocks that fill no tile, chunk or vector."""
    rng = np.random.default_rng(bits)
    for tokens, outputs, blocks in [
        (1, 1, 1),
        (2, 17, 3),
        (4, 5, 2),
        (7, 33, 18),
        (13, 40, 17),
        (21, 19, 48),
        (1, 64, 5),
    ]:
        x = rng.normal(0, 1, (tokens, 32 * blocks)).astype(np.float32)
        matrix = made(rng, outputs, blocks, bits, halves=halves)
        bias = rng.normal(0, 1, outputs).astype(np.float32)
        assert off(product(form, x, *matrix, bias), x, matrix, bias) < 3e-5, (tokens, outputs, blocks)
        codes, scales, _ = matrix
        assert off(product(form, x, codes, scales, None), x, (codes, scales, None)) < 3e-5


@pytest.mark.parametrize("form", FOUND)
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_multiply__a_scale_for_every_16(form: Any, kind: type) -> None:
    """Codes of 8 bits only."""
    rng = np.random.default_rng(8)
    for tokens, outputs, blocks in [(1, 3, 1), (5, 18, 3), (9, 33, 18)]:
        x = rng.normal(0, 1, (tokens, 32 * blocks)).astype(np.float32)
        codes = rng.integers(0, 256, (outputs, blocks, 32), np.uint8)
        scales = rng.normal(0, 0.1, (outputs, 2 * blocks)).astype(kind)
        assert off(product(form, x, codes, scales, None), x, (codes, scales, None)) < 3e-5


@pytest.mark.parametrize("form", FOUND)
def test_multiply__a_token_does_not_depend_on_its_neighbours(form: Any) -> None:
    """A prefill and steps give the same bits."""
    rng = np.random.default_rng(3)
    x = rng.normal(0, 1, (29, 18 * 32)).astype(np.float32)
    matrix = made(rng, 45, 18, 4, halves=True)
    together = product(form, x, *matrix)
    for token in range(len(x)):
        np.testing.assert_array_equal(product(form, x[token : token + 1].copy(), *matrix)[0], together[token])


@pytest.mark.parametrize("form", FOUND)
def test_round__is_fine_in_each_block_by_itself(form: Any) -> None:
    """A spike of one block takes nothing from the others: the error is 2⁻¹⁶ of each block's own largest value."""
    x = np.random.default_rng(4).normal(0, 1e-3, (1, 64)).astype(np.float32)
    x[0, 5] = 4000
    codes, scales = np.zeros((64, 2, 16), np.uint8), np.ones((64, 2), np.float32)
    for column in range(64):
        codes[column, column // 32, column % 32 // 2] = 1 << (4 * (column % 2))
    found = product(form, x, codes, scales, None)[0]
    step = np.abs(x.reshape(2, 32)).max(axis=1).repeat(32) / 32767
    assert (np.abs(found - x[0]) <= 0.51 * step).all()


@pytest.mark.parametrize("form", FOUND)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_round__what_is_no_number_is_not_hidden(form: Any, bad: float) -> None:
    """Every result of that token, and of no other."""
    rng = np.random.default_rng(5)
    for bits in (4, 8):
        x = rng.normal(0, 1, (3, 96)).astype(np.float32)
        x[1, 50] = bad
        codes, scales, _ = made(rng, 9, 3, bits, halves=False)
        found = product(form, x, codes, scales, None)
        assert np.isnan(found[1]).all()
        assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("form", FOUND)
def test_round__what_codes_are_less_is_of_the_same_rounding(form: Any) -> None:
    """A matrix of zeros gives zero: it is the element's size that rounding errors are multiplied by, not its code's."""
    x = np.random.default_rng(9).normal(0, 1, (5, 64)).astype(np.float32)
    codes, scales = np.full((9, 2, 16), 0x88, np.uint8), np.ones((9, 2), np.float32)
    found = product(form, x, codes, scales, -8 * scales)
    assert (np.abs(found).max(axis=1) <= 2e-7 * np.abs(8 * x).sum(axis=1)).all()


@pytest.mark.parametrize("form", FOUND)
@pytest.mark.parametrize("bits", [4, 8])
def test_round__the_largest_numbers(form: Any, bits: int) -> None:
    """Their sum is no float any more, but results are."""
    codes, scales, _ = made(np.random.default_rng(10), 9, 2, bits, halves=False)
    x, scales = np.full((2, 64), 3e38, np.float32), scales * np.float32(1e-6)
    x[1, ::3] = -3e38
    assert off(product(form, x, codes, scales, None), x, (codes, scales, None)) < 3e-5


@pytest.mark.parametrize("form", FOUND)
def test_round__nothing_at_all(form: Any) -> None:
    """Zeros, and values too small to be scaled."""
    rng = np.random.default_rng(6)
    codes, scales, ends = made(rng, 4, 2, 4, halves=False)
    x = np.zeros((2, 64), np.float32)
    x[1] = 1e-44
    found = product(form, x, codes, scales, ends)
    assert (found == 0).all()


def node_model(arrays: dict[str, Array | None], **attributes: int) -> onnx.ModelProto:
    """A graph of one BlockProduct over constants; x is [n, 64]."""
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items() if array is not None]
    names = ["x", *("" if array is None else name for name, array in arrays.items())]
    node = helper.make_node("BlockProduct", names, ["y"], domain=DOMAIN, **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["a", "n", 64])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)])


def opened(model: onnx.ModelProto, threads: int = 1) -> Any:
    options = session_options(Budget(threads=threads))
    register(options)
    with mapped_errors("graph g"):
        return runtime().InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("threads", [1, 3])
def test_operator__runs_in_onnxruntime(threads: int) -> None:
    """With everything, and with the least, for any leading axes; twice from one library."""
    rng = np.random.default_rng(7)
    codes, scales, ends = made(rng, 100, 2, 4, halves=True)
    bias = rng.normal(0, 1, 100).astype(np.float32)
    x = rng.normal(0, 1, (2, 19, 64)).astype(np.float32)
    whole = opened(node_model({"c": codes, "s": scales, "e": ends, "b": bias}, bits=4, centre=0), threads)
    [found] = whole.run(None, {"x": x})
    assert found.shape == (2, 19, 100)
    assert off(found.reshape(38, -1), x.reshape(38, -1), (codes, scales, ends), bias) < 3e-5

    centred = opened(node_model({"c": codes, "s": scales}, bits=4, centre=8), threads)
    ends = (-8 * scales.astype(np.float32)).astype(np.float32)
    assert off(centred.run(None, {"x": x})[0].reshape(38, -1), x.reshape(38, -1), (codes, scales, ends)) < 3e-5
    assert centred.run(None, {"x": x[:, :0]})[0].shape == (2, 0, 100)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"s": np.ones((5, 2), np.float32)}, "scales does not fit 4 outputs of 2 blocks"),
        ({"s": np.ones((4, 2), np.float64)}, "scales does not fit"),
        ({"e": np.ones((4, 2), np.float16)}, "ends does not fit"),
        ({"e": np.ones((4, 2), np.float32), "centre": 8}, "centre does not fit"),
        ({"s": np.ones((4, 4), np.float32)}, "scales does not fit"),
        (
            {
                "c": np.zeros((4, 2, 32), np.uint8),
                "s": np.ones((4, 4), np.float32),
                "e": np.ones((4, 4), np.float32),
                "bits": 8,
            },
            "ends does not fit",
        ),
        ({"b": np.ones(5, np.float32)}, "bias does not fit"),
        ({"bits": 5}, "codes: allowed is u8"),
        ({"c": np.zeros((4, 2, 15), np.uint8)}, "codes: allowed is u8"),
        ({"c": np.zeros((4, 32), np.uint8)}, "codes: allowed is u8"),
        ({"centre": 16}, "centre does not fit"),
    ],
)
def test_operator__refuses_what_does_not_fit(change: dict[str, Any], said: str) -> None:
    """When the graph is loaded: nothing is read beyond a constant."""
    given: dict[str, Any] = {
        "c": np.zeros((4, 2, 16), np.uint8), "s": np.ones((4, 2), np.float32), "e": None, "b": None, "bits": 4,
        "centre": 0,
    }  # fmt: skip
    given |= change
    arrays = {name: given[name] for name in "cseb"}
    while arrays and list(arrays.values())[-1] is None:
        arrays.popitem()
    with pytest.raises(BackendError, match=said):
        opened(node_model(arrays, bits=given["bits"], centre=given["centre"]))


@pytest.mark.parametrize("computed", ["c", "s", "e", "b"])
def test_operator__refuses_what_is_computed(computed: str) -> None:
    """An optional input that is no constant is not left out in silence; trailing names that are empty are none."""
    arrays = {
        "c": np.zeros((4, 2, 16), np.uint8), "s": np.ones((4, 2), np.float32), "e": np.ones((4, 2), np.float32),
        "b": np.ones(4, np.float32),
    }  # fmt: skip
    model = node_model(arrays, bits=4, centre=0)
    model.graph.node.insert(0, helper.make_node("Identity", [computed], ["same"]))
    [place] = [index for index, name in enumerate(model.graph.node[1].input) if name == computed]
    model.graph.node[1].input[place] = "same"
    said = {"c": "codes", "s": "scales", "e": "ends", "b": "bias"}[computed]
    with pytest.raises(BackendError, match=f"{said}.* allowed is a constant"):
        opened(model)
    model.graph.node[1].input[:] = ["x", "c", "s", "", ""]
    assert opened(model).run(None, {"x": np.zeros((1, 1, 64), np.float32)})[0].shape == (1, 1, 4)


def test_operator__refuses_a_row_of_another_width() -> None:
    """A graph whose shapes are known only when it runs."""
    model = node_model({"c": np.zeros((4, 3, 16), np.uint8), "s": np.ones((4, 3), np.float32)}, bits=4, centre=0)
    session = opened(model)
    with mapped_errors("graph g"), pytest.raises(Exception, match="x does not fit 4 outputs of 3 blocks"):
        session.run(None, {"x": np.zeros((1, 1, 64), np.float32)})


def test_library__says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A plugin without its compiled part is no plugin that works otherwise."""
    monkeypatch.setattr(dpfedge_cpu.kernels, "__file__", str(tmp_path / "kernels.py"))
    with pytest.raises(Unavailable, match="compiled operators") as found:
        library()
    assert "C compiler" in str(found.value)


def test_library__is_built_from_every_source() -> None:
    """pyproject cannot glob: its lists are the folder's content."""
    [kernels] = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    folder = PLUGIN / "kernels"
    assert sorted(kernels["sources"]) == sorted(f"kernels/{path.name}" for path in folder.glob("*.c"))
    assert sorted(kernels["depends"]) == sorted(f"kernels/{path.name}" for path in folder.glob("*.h"))
