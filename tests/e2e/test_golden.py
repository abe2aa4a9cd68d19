# SPDX-License-Identifier: Apache-2.0
"""Golden values of the demo: the machine agrees with the reference, and a damaged weight of any model is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from dpfedge.backend.registry import Registry
from dpfedge.binding import bind_here
from dpfedge.binding.golden import require_golden, run_golden
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.recipe import load_recipe
from dpfedge.errors import BackendError
from dpfedge.models import cached
from dpfedge.package import Package, open_package

NEEDED = ("silero-vad", "moonshine-tiny-en", "smollm2-135m-instruct-q4_1", "piper-en-us-joe")
RECIPE = Path(__file__).parents[2] / "examples" / "voice" / "voice.yaml"
pytestmark = pytest.mark.skipif(not all(map(cached, NEEDED)), reason="`dpfedge models pull` has not filled the cache")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo package for this machine."""
    path = tmp_path_factory.mktemp("golden") / "voice.dpfbin"
    compile_package(load_recipe(RECIPE), path, boards=["host"], registry=Registry.load())
    return path


def test_golden__every_graph_agrees(path: Path) -> None:
    """Each graph of each model has golden values, they fit into 2 MiB, and this machine gives them."""
    with open_package(path, check="fast") as package:
        bound = bind_here(package)
        results = require_golden(bound)
        wanted = {(name, graph) for name in bound.models for graph in bound.model(name).graphs}
        size = sum(section.size for section in package.manifest.sections if section.kind == "golden")

    assert {(result.model, result.graph) for result in results} == wanted
    assert size < 2 << 20


def test_golden__on_the_command_line(path: Path) -> None:
    """`verify --run` prints the table."""
    command = [sys.executable, "-m", "dpfedge", "verify", "--run", "--allow-unsigned", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pass") >= 19


def large(package: Package, model: str) -> Iterator[tuple[str, int]]:
    """(name, place in the file) of the top byte of one float below 2 in each float weight of `model`'s first graph."""
    graph = next(iter(package.manifest.targets[0].models[model].graphs.values()))
    found = onnx.ModelProto.FromString(bytes(package.section(graph.section)))
    for tensor in found.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if not place or tensor.data_type != onnx.TensorProto.FLOAT or "rotary" in tensor.name:
            continue
        start, size = int(place["offset"]), int(place["length"])
        values = np.abs(np.frombuffer(package.section(place["location"])[start : start + size], np.float32))
        index = int(np.argmax(np.where(values < 2, values, 0)))
        yield tensor.name, package.find(place["location"]).offset + start + 4 * index + 3


@pytest.mark.parametrize("model", ["vad", "speech", "llm", "voice"])
def test_golden__finds_one_flipped_bit(path: Path, tmp_path: Path, model: str) -> None:
    """The top exponent bit of one weight, in three tensors of each model; digests are not what finds it here."""
    with open_package(path, check="fast") as package:
        places = [item for item in large(package, model) if "embedding" not in item[0]]
    for name, place in places[:: max(1, len(places) // 3)][:3]:
        damaged = Path(shutil.copy(path, tmp_path / "damaged.dpfbin"))
        with damaged.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 0x40]))
        with open_package(damaged, check="fast") as package:
            bound = bind_here(package)
            failed = {result.model for result in run_golden(bound) if not result.passed}
            assert failed == {model}, name
            with pytest.raises(BackendError, match=rf"{model}\..*golden run failed"):
                require_golden(bound)
