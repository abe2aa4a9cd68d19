# SPDX-License-Identifier: Apache-2.0
"""Parity: documents that keep what a machine computed, and two of them compared."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedge.backend.api import Array
from dpfedge.binding.bound import Bound
from dpfedge.binding.golden import GoldenAnswer, GoldenResult
from dpfedge.binding.parity import Heard, Output, Side, compare, forms, read_side, side_of, words, words_apart
from dpfedge.errors import UsageError

LOGITS = np.array([[0.0, 2.0, 1.0], [3.0, 0.5, 2.9]], np.float32)
MACHINE = {"arch": "aarch64", "cpu": "", "level": "armv8.2-a", "features": ["neon"], "onnxruntime": "1"}
RULES = (("llm: int8=u8·u8", "exact on every CPU"), ("memory=1 MiB", "weights"), ("x", "AVX2 would saturate"))


def output(values: Array, port: str = "logits", allowed: float | None = 0.1) -> Output:
    """One output with its recorded tolerance."""
    return Output("llm", "step", 0, port, values, 0.0, 0.0, allowed, allowed)


def side(*outputs: Output, speech: tuple[Heard, ...] = ()) -> Side:
    """A machine's answers."""
    package = {"name": "talk", "version": "1", "sha256": "ab" * 32}
    return Side(package, MACHINE, "cpu-armv8.2-a", RULES, outputs, speech)


def test_side_of__keeps_what_was_computed(tmp_path: Path) -> None:
    """Package, target and decisions of what is bound; infinite errors become null; a file gives the same again."""
    manifest = SimpleNamespace(name="talk", version="1")
    package = SimpleNamespace(manifest=manifest, manifest_sha256=bytes(32))
    bound = SimpleNamespace(package=package, targets=[SimpleNamespace(id="t", decisions=RULES)])
    answers = [GoldenAnswer(GoldenResult("llm", "step", 1, "logits", np.inf, 0.5, 1.0, None), LOGITS)]

    made = side_of(cast(Bound, bound), answers, MACHINE, [Heard("00", "hello", "hello")])
    path = tmp_path / "a.json"
    path.write_text(made.text())
    again = read_side(path)

    assert again.text() == made.text()
    assert (again.package["sha256"], again.target, again.decisions) == ("00" * 32, "t", RULES)
    [one] = again.outputs
    assert (one.name, one.max_abs, one.rel_l2, one.rel_l2_allowed) == ("llm.step#1 logits", None, 0.5, None)
    assert np.array_equal(one.values, LOGITS)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_text__keeps_every_dtype(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """Scalars and empty tensors too."""
    values = np.asarray(np.arange(6)[: int(np.prod(shape, dtype=int))].reshape(shape) * 3, dtype)
    (tmp_path / "a").write_text(side(output(values)).text())
    [one] = read_side(tmp_path / "a").outputs

    assert (one.values.dtype, one.values.shape) == (values.dtype, values.shape)
    assert np.array_equal(one.values, values)


def test_compare__errors_tokens_and_what_both_may_be_off() -> None:
    """Both may be off the record, so both tolerances count; a token that changed is told with its margin."""
    other = LOGITS.copy()
    other[1] = [2.95, 0.5, 3.0]
    [row] = compare(side(output(LOGITS)), side(output(other)))

    assert (row.tokens, row.same) == (2, 1)
    assert row.margin == pytest.approx(0.1)
    assert row.max_abs == pytest.approx(0.1)
    assert (row.max_abs_allowed, row.rel_l2_allowed, row.passed) == (0.2, 0.2, True)
    assert not compare(side(output(LOGITS)), side(output(LOGITS + 1)))[0].passed


def test_compare__whole_numbers_must_be_equal() -> None:
    """Tokens a graph chose itself are counted; other whole numbers are only compared."""
    tokens = output(np.array([[3, 1]]), "token", None)
    changed = output(np.array([[3, 2]]), "token", None)
    [row] = compare(side(tokens), side(changed))

    assert (row.tokens, row.same, row.passed) == (2, 1, False)
    assert compare(side(tokens), side(tokens))[0].passed
    length = output(np.array([3]), "length", None)
    assert compare(side(length), side(length))[0].tokens == 0


def test_compare__other_shapes_are_infinitely_far() -> None:
    """And have no tokens to compare."""
    [row] = compare(side(output(LOGITS)), side(output(LOGITS[:1])))

    assert (row.max_abs, row.passed, row.tokens) == (np.inf, False, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"package": {"name": "talk", "version": "2", "sha256": "cd" * 32}}, "different packages; found talk 1"),
        ({"outputs": (output(LOGITS, "y"),)}, "different golden outputs; found llm.step logits, llm.step y"),
        ({"speech": (Heard("77", "a", "a"),)}, "different recordings; found 66, 77"),
    ],
)
def test_compare__of_different_things_is_refused(change: dict[str, Any], said: str) -> None:
    """Nothing could be learnt from it."""
    here = side(output(LOGITS), speech=(Heard("66", "b", "b"),))
    with pytest.raises(UsageError, match=said):
        compare(here, dataclasses.replace(here, **change))
    assert compare(here, side(output(LOGITS)))[0].passed  # a machine that heard nothing


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"parity": 2}',
        '{"parity": 1}',
        json.dumps({**json.loads(side().text()), "decisions": [1]}),
    ],
)
def test_read_side__what_is_no_document_is_refused(tmp_path: Path, text: str) -> None:
    """With the file's name."""
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"a\.json"):
        read_side(path)
    with pytest.raises(UsageError, match="No such file"):
        read_side(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("machine", "cpu"), None, "cpu is None"),
        (("machine", "features"), [5], "features is"),
        (("machine",), {"arch": "aarch64"}, "KeyError: 'features'"),
        (("package",), {"name": "talk"}, "KeyError: 'version'"),
        (("outputs", 0, "port"), 5, "port is 5"),
        (("outputs", 0, "max_abs_allowed"), "0.1", "max_abs_allowed is '0.1'"),
        (("outputs", 0, "rel_l2"), 10**400, "OverflowError"),
        (("outputs", 0, "values", "dims"), [10**30], "Error"),
        (("outputs", 0, "values", "dtype"), "i4", "FormatError"),
        (("speech", 0, "heard"), None, "heard is None"),
    ],
)
def test_read_side__what_has_another_kind_is_refused(tmp_path: Path, place: Any, value: Any, said: str) -> None:
    """Before anything is compared or shown."""
    document = json.loads(side(output(LOGITS), speech=(Heard("66", "b", "b"),)).text())
    row = document
    for name in place[:-1]:
        row = row[name]
    row[place[-1]] = value
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=rf"a\.json: not what .* writes; found .*{said}"):
        read_side(path)


@given(at=st.integers(0, 400), to=st.characters(codec="utf-8"))
def test_read_side__survives_damage(tmp_path_factory: pytest.TempPathFactory, at: int, to: str) -> None:
    """One changed character is either a document or refused."""
    text = side(output(LOGITS)).text()
    at %= len(text)
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(text[:at] + to + text[at + 1 :], "utf-8")
    with contextlib.suppress(UsageError):
        assert read_side(path).package


def test_read_side__values_larger_than_a_golden_tensor_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file cannot ask for much memory."""
    monkeypatch.setattr("dpfedge.limits.GOLDEN_TENSOR_MAX_BYTES", 8)
    (tmp_path / "a").write_text(side(output(LOGITS)).text())
    with pytest.raises(UsageError, match="larger than a golden tensor may be"):
        read_side(tmp_path / "a")


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [("Ever tried.", "ever tried", 0), ("a b c d", "a x c", 0.5), ("", "", 0), ("", "well", 1), ("it's", "its", 1)],
)
def test_heard__word_error_rate(said: str, heard: str, errors: float) -> None:
    """Case and punctuation are no words."""
    assert Heard("", said, heard).errors == errors


def test_words_apart__is_symmetric() -> None:
    """Insertions one way are deletions the other."""
    a, b = words("try again, fail again"), words("try again fail better again")

    assert words_apart(a, b) == words_apart(b, a) == 1


def test_forms__are_the_decisions_on_small_numbers() -> None:
    """What is said of memory is not among them."""
    assert list(forms(side())) == ["llm: int8=u8·u8: exact on every CPU", "x: AVX2 would saturate"]
