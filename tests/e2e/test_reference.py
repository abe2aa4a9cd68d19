# SPDX-License-Identifier: Apache-2.0
"""The reference backend on every graph of the demos' real models: it answers as their golden values say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dpfedge_reference import ReferenceBackend

from dpfedge.backend.api import Array
from dpfedge.compiler.families import FAMILIES, Options
from dpfedge.compiler.golden import Case, make_cases
from dpfedge.compiler.recipe import load_recipe
from dpfedge.compiler.sources import find_files
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
    (source,) = (one for one in load_recipe(EXAMPLES / recipe).models if one.name == model)
    files = find_files(source, EXAMPLES / Path(recipe).parent, None)
    imported = FAMILIES[source.family].load(files.paths, Options(source.mode or "fast", source.context))
    cases, _ = make_cases(source.name, source.family, imported)
    device = BACKEND.devices(Path("/"))[0]

    assert cases
    for case in cases:
        graph = imported.graphs[case.graph]
        executable = load(BACKEND, device, graph)
        feeds = {name: np.asarray(array) for name, array in case.feeds.items()}
        for spec in executable.inputs:
            if spec.name not in feeds:  # as the golden run: zeros where the sample says nothing
                feeds[spec.name] = np.zeros([int(dim) for dim in spec.dims], spec.numpy)
        found = executable.run(feeds)
        for name, off in _offs(case, found):
            assert off <= ALLOWED, f"{model}.{case.graph}: {name}"


def _offs(case: Case, found: dict[str, Array]) -> Iterator[tuple[str, float]]:
    for name, box in case.outputs.items():
        assert found[name].shape == tuple(box.whole), name
        part = tuple(slice(at, at + size) for at, size in zip(box.at, box.values.shape, strict=True))
        right = box.values.astype(np.float64)
        yield name, float(np.linalg.norm(found[name][part] - right) / max(np.linalg.norm(right), 1e-12))
