# SPDX-License-Identifier: Apache-2.0
"""An imported model in, golden inputs and outputs of each of its graphs out, as a section and manifest records.

The outputs are the reference run's (`dpfedge.compiler.reference`); how far a target may be off follows from the graph's
arithmetic, by `tolerance`. The same model gives the same bytes on the same kind of CPU.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from dpfedge import limits
from dpfedge.backend.api import Array
from dpfedge.compiler.families import Imported
from dpfedge.compiler.importer.onnx import subgraphs
from dpfedge.compiler.reference import Reference
from dpfedge.compiler.samples import Sample, samples
from dpfedge.errors import ModelError
from dpfedge.package import PackageWriter
from dpfedge.package.writer import SectionStream
from dpfedge.records import dataclass
from dpfedge.tensors import dtype_name

__all__ = ["Case", "make_cases", "tolerance", "write_cases"]

OUTPUT_ELEMENTS = 1 << 16  # of larger outputs the last elements are kept
INPUT_BYTES = 4 << 20  # a graph that needs more input is not run: golden values must stay a small part of a package
_TRIES = 8
_TOLERANCES: Mapping[str, tuple[float, str]] = {
    "block": (
        0.12,
        "activations are quantised to 8 bits per block: up to 6 % off on real models, and twice that is bad",
    ),
    "dequantised": (
        0.19,
        "activations that the golden run quantised stay floats: up to 9.3 % off on real models, and twice that is bad",
    ),
    "block16": (
        0.005,
        "activations are rounded to 16 bits per block: up to 0.16 % off on real models, and three times that is bad",
    ),
    "int8": (0.05, "activations are quantised to 8 bits: a last bit may decide the next step"),
    "half": (0.01, "arithmetic in 16-bit floats"),
    "tf32": (0.004, "products of floats that are cut to 10 bits of fraction"),
    "float": (0.001, "float32 throughout: only the order of sums differs"),
}
"""Arithmetic of a graph → the relative L2 error a target may have, and why."""
_INT8 = re.compile(r"DynamicQuantize.*|MatMulInteger.*|ConvInteger|QLinear.*|QGemm|QAttention|QuantizeLinear|QMoE")
_HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
_NIBBLES = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)
_LARGEST = 4  # times the relative error and the largest value: what one element may be off


@dataclass(frozen=True, slots=True)
class Box:
    """A part of an output: its values, where it begins, and the sizes of the whole."""

    values: Array
    at: tuple[int, ...]
    whole: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One call to record."""

    graph: str
    feeds: Mapping[str, Array]
    outputs: Mapping[str, Box]
    in_place: tuple[tuple[str, str], ...]
    tolerance: float


def tolerance(
    model: onnx.ModelProto, hints: Mapping[str, Any] | None = None, arithmetic: str = "graph"
) -> tuple[float, str]:
    """(largest relative L2 error, rule) for answers of a form of `model` that was lowered with `hints`.

    `arithmetic` is the target's own, or `graph` (`LoweredGraph.arithmetic`).
    """
    levels = (hints or {}).get("session", {}).get("session.qdq_matmulnbits_accuracy_level")
    found = {"float"} if arithmetic == "graph" else {"float", arithmetic}
    for graph in subgraphs(model.graph):
        for node in graph.node:
            if _INT8.fullmatch(node.op_type):
                found.add("int8")
            if node.op_type == "MatMulNBits" and any(a.name == "accuracy_level" and a.i == 4 for a in node.attribute):
                found.add("block")
        kinds = {tensor.data_type for tensor in graph.initializer}
        if kinds & set(_HALF):
            found.add("half")
        if levels == "4" and kinds & set(_NIBBLES):  # lowering makes block products of them
            found.add("block")
    if arithmetic == "block16":
        found.discard("block")
    return max(_TOLERANCES[name] for name in found)


def make_cases(
    model: str, family: str, imported: Imported, arithmetic: Mapping[str, str] | None = None
) -> tuple[list[Case], dict[str, tuple[str, str]]]:
    """The calls of every graph, and for each graph a decision: the tolerance, or why there are no golden values.

    `arithmetic` has the graphs that the targets compute more coarsely than they were imported, or finer.
    """
    cases: list[Case] = []
    decisions: dict[str, tuple[str, str]] = {}
    done: dict[str, Mapping[str, Array]] = {}
    for name, graph in imported.graphs.items():
        allowed, rule = tolerance(graph, imported.hints.get(name), (arithmetic or {}).get(name, "graph"))
        try:
            reference = Reference(f"{model}.{name}", graph)
            found = list(_calls(reference, family, name, imported, done, allowed))
        except (ModelError, KeyError) as error:
            decisions[name] = ("golden=none", f"no generated input could be run: {error}")
            continue
        if not found:
            decisions[name] = ("golden=none", "its answers change from run to run, or with the last bit of its inputs")
            continue
        cases += found
        decisions[name] = (f"golden=rel_l2≤{allowed:g}", rule)
    return cases, decisions


def _calls(
    reference: Reference,
    family: str,
    graph: str,
    imported: Imported,
    done: dict[str, Mapping[str, Array]],
    allowed: float,
) -> Iterator[Case]:
    count = len(samples(family, graph, reference.inputs, imported.config, done, 0))
    for index in range(count):
        for seed in range(_TRIES):
            sample = samples(family, graph, reference.inputs, imported.config, done, seed)[index]
            sample, answers = _first_that_runs(reference, sample)
            unsteady = _unsteady(reference, sample, answers, allowed)
            if not unsteady:
                break
        done.setdefault(graph, answers)
        kept = {name: value for name, value in answers.items() if name not in unsteady}
        outputs = {name: _box(kept[name], sample, name) for name in _told(kept, sample.layered)}
        if outputs:
            yield Case(graph, sample.feeds, outputs, sample.in_place, allowed)


def _first_that_runs(reference: Reference, sample: Sample) -> tuple[Sample, Mapping[str, Array]]:
    """The sample, or the first of its alternatives, with its answers; ModelError of the first when none runs."""
    refusal: ModelError | None = None
    for feeds in itertools.chain([sample.feeds], sample.alternatives()):
        chosen = Sample(feeds, sample.in_place, sample.written, sample.layered)
        if sum(array.nbytes for array in feeds.values()) > INPUT_BYTES:
            refusal = refusal or ModelError("inputs are too large for golden values", where=reference.where)
            continue
        try:
            return chosen, _run(reference, chosen, feeds)
        except ModelError as error:
            refusal = refusal or error
    raise refusal or ModelError("nothing to run", where=reference.where)


def _run(reference: Reference, sample: Sample, feeds: Mapping[str, Array]) -> dict[str, Array]:
    whole = dict(feeds)
    for spec in reference.inputs:
        if spec.name not in whole:
            sizes = [int(dim) for dim in spec.dims if type(dim) is int]
            if len(sizes) != len(spec.dims) or math.prod(sizes) * 8 > limits.GOLDEN_TENSOR_MAX_BYTES:
                raise ModelError("an input has no values", where=reference.where, found=spec.name)
            whole[spec.name] = np.zeros(sizes, spec.numpy)
    places = {
        spec.name: read + spec.name[len(written) :]
        for spec in reference.outputs
        for written, read in sample.in_place
        if spec.name.startswith(written)
    }
    return reference.run(whole, places)


def _unsteady(reference: Reference, sample: Sample, answers: Mapping[str, Array], allowed: float) -> set[str]:
    """Outputs that rounding can turn over: whole numbers and shapes that change with inputs as near as `allowed`.

    Also what a second run answers otherwise, as graphs that draw random numbers do.
    """
    again = _run(reference, sample, sample.feeds) if reference.draws else answers
    random = np.random.RandomState(7)
    near = {
        name: np.asarray(array * (1 + allowed * random.uniform(-1, 1, array.shape)), array.dtype)
        for name, array in sample.feeds.items()
        if array.dtype.kind == "f"
    }
    shaken = _run(reference, sample, {**sample.feeds, **near}) if near and _has_choices(answers) else again
    return {
        name
        for name, value in answers.items()
        if not _same(value, again[name])
        or shaken[name].shape != value.shape
        or (_is_choice(value) and not _same(value, shaken[name]))
    }


def _has_choices(answers: Mapping[str, Array]) -> bool:
    return any(_is_choice(value) or value.ndim for value in answers.values())


def _is_choice(value: Array) -> bool:
    return (value.dtype.kind in "iub" and value.dtype.itemsize != 1) or value.dtype.kind == "b"


def _same(first: Array, second: Array) -> bool:
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=first.dtype.kind == "f"))


def _told(answers: Mapping[str, Array], layered: Sequence[str]) -> list[str]:
    """The outputs to record: all, but of outputs that differ in a layer's number only the last layer's."""
    last: dict[str, str] = {}
    for name in answers:
        key = re.sub(r"\d+", "#", name) if name.startswith(tuple(layered)) else name
        if key not in last or _numbers(name) >= _numbers(last[key]):
            last[key] = name
    return sorted(last.values())


def _numbers(name: str) -> list[int]:
    return [int(text) for text in re.findall(r"\d+", name)]


def _box(value: Array, sample: Sample, name: str) -> Box:
    """What is stored of an output: of one in place the written positions, of a large one its last elements."""
    if any(name.startswith(written) for written, _ in sample.in_place):
        return Box(np.ascontiguousarray(value[:, :, : sample.written]), (0,) * value.ndim, value.shape)
    at, sizes = [0] * value.ndim, list(value.shape)
    for axis in range(value.ndim):
        rest = math.prod(sizes[axis + 1 :])
        if sizes[axis] * rest > OUTPUT_ELEMENTS:
            sizes[axis] = max(1, OUTPUT_ELEMENTS // rest) if rest else sizes[axis]
            at[axis] = value.shape[axis] - sizes[axis]
    box = value[tuple(slice(start, None) for start in at)]
    return Box(np.ascontiguousarray(box).reshape(sizes), tuple(at), value.shape)


def write_cases(
    writer: PackageWriter, model: str, cases: Sequence[Case], form: str = "", targets: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Store the values of a model's cases in a section; the manifest's records, for all targets or each of `targets`.

    `form` tells apart the sections of a model that has several forms.
    """
    if not cases:
        return []
    stream = writer.begin(f"golden.{model}.{form}" if form else f"golden.{model}", "golden")
    places: dict[bytes, int] = {}
    records = [
        {
            "model": model,
            "graph": case.graph,
            "section": stream.name,
            "inputs": {name: _tensor(stream, places, array) for name, array in sorted(case.feeds.items())},
            "outputs": {name: _output(stream, places, box, case.tolerance) for name, box in case.outputs.items()},
            **({"in_place": [list(pair) for pair in case.in_place]} if case.in_place else {}),
            **({"target": target} if target else {}),
        }
        for target in targets or ("",)
        for case in cases
    ]
    stream.end()
    return records


def _tensor(stream: SectionStream, places: dict[bytes, int], array: Array) -> dict[str, Any]:
    data = np.ascontiguousarray(array).tobytes()
    digest = hashlib.sha256(data).digest()
    if digest not in places:
        stream.pad(64)
        places[digest] = stream.write(data)
    dims = list(array.shape)
    return {"dtype": dtype_name(array.dtype), "dims": dims, "offset": places[digest], "size": len(data)}


def _output(stream: SectionStream, places: dict[bytes, int], box: Box, allowed: float) -> dict[str, Any]:
    record = _tensor(stream, places, box.values)
    if any(box.at):
        record["at"] = list(box.at)
    if box.whole != box.values.shape:
        record["whole"] = list(box.whole)
    if box.values.dtype.kind == "f":
        finite = box.values[np.isfinite(box.values)].astype(np.float64)
        largest = float(np.abs(finite).max()) if finite.size else 0.0
        record["max_abs"] = float(f"{_LARGEST * allowed * largest or allowed:.3g}")
        if largest:
            record["rel_l2"] = allowed
    elif box.values.dtype.itemsize == 1 and box.values.dtype.kind != "b" and allowed > 0.001:
        record["max_abs"] = 1.0  # an 8-bit code: the next step
    return record
