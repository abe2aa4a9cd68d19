# SPDX-License-Identifier: Apache-2.0
"""The reference backend on every graph of the demos' real models: it answers as their golden values say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpfedge_reference import ReferenceBackend
from dpfedge_reference.evaluator import prepare

from dpfedge.backend.api import Array
from dpfedge.backend.onnx_graph import graph_ports
from dpfedge.compiler.families import FAMILIES, Imported, Options
from dpfedge.compiler.golden import Case, make_cases
from dpfedge.compiler.recipe import load_recipe
from dpfedge.compiler.sources import find_files
from dpfedge.tensors import TensorSpec
from dpfedge.testing.cases import cases as suite_cases
from dpfedge.testing.loading import load

EXAMPLES = Path(__file__).parents[2] / "examples"
BACKEND = ReferenceBackend()
ALLOWED = 1e-4  # its sums are of 64 bits: only those of the golden run are off
MODELS = [
    ("voice/voice.yaml", "vad"),
    ("voice/voice.yaml", "speech"),
    ("voice/voice.yaml", "voice"),
    ("camera-ocr/camera-ocr.yaml", "detect"),
    ("camera-ocr/camera-ocr.yaml", "read"),
    pytest.param("voice/voice.yaml", "llm", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("recipe", "model"), MODELS)
def test_reference__agrees_with_golden_values(recipe: str, model: str) -> None:
    """Graph by graph, each output it has golden values of."""
    imported, cases = _imported(recipe, model)
    device = BACKEND.devices(Path("/"))[0]

    assert cases
    for case in cases:
        graph = imported.graphs[case.graph]
        executable = load(BACKEND, device, graph)
        found = executable.run(_whole(case, executable.inputs))
        for name, off in _offs(case, found):
            assert off <= ALLOWED, f"{model}.{case.graph}: {name}"


@pytest.mark.parametrize(("recipe", "model"), MODELS)
def test_suite__has_every_operator_and_dtype_of_the_demos(recipe: str, model: str) -> None:
    """By the first input's dtype while the golden inputs run; what draws has no right answer and stands in no table."""
    table = {(case.op, next(iter(case.arrays.values())).dtype) for case in suite_cases()}
    imported, cases = _imported(recipe, model)

    for case in cases:
        graph = imported.graphs[case.graph]
        inputs, _ = graph_ports(graph, case.graph)
        values: Any = prepare(graph, {}).run(None, _whole(case, inputs), intermediate=True)
        firsts = ((node.op_type, values.get(next(filter(None, node.input), ""))) for node in graph.graph.node)
        used = {(op, value.dtype) for op, value in firsts if isinstance(value, np.ndarray)}
        assert used - table <= {("RandomNormalLike", np.dtype(np.float32))}


def _imported(recipe: str, model: str) -> tuple[Imported, Sequence[Case]]:
    (source,) = (one for one in load_recipe(EXAMPLES / recipe).models if one.name == model)
    files = find_files(source, EXAMPLES / Path(recipe).parent, None)
    imported = FAMILIES[source.family].load(files.paths, Options(source.mode or "fast", source.context))
    return imported, make_cases(source.name, source.family, imported)[0]


def _whole(case: Case, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """As the golden run: zeros where the sample says nothing."""
    feeds = {name: np.asarray(array) for name, array in case.feeds.items()}
    for spec in inputs:
        if spec.name not in feeds:
            feeds[spec.name] = np.zeros([int(dim) for dim in spec.dims], spec.numpy)
    return feeds


def _offs(case: Case, found: dict[str, Array]) -> Iterator[tuple[str, float]]:
    for name, box in case.outputs.items():
        assert found[name].shape == tuple(box.whole), name
        part = tuple(slice(at, at + size) for at, size in zip(box.at, box.values.shape, strict=True))
        right = box.values.astype(np.float64)
        yield name, float(np.linalg.norm(found[name][part] - right) / max(np.linalg.norm(right), 1e-12))
