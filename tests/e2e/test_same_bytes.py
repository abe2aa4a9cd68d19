# SPDX-License-Identifier: Apache-2.0
"""The same recipe gives the same bytes: in another process, with other hash seeds, under another Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dpfedge.models import cached

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "made" / "made_compile.py"
sys.path.insert(0, str(ROOT / "tests" / "unit" / "compiler" / "made"))
WHEELS = ("cbor2", "jinja2", "numpy", "onnx", "onnxruntime", "packaging", "pluggy", "protobuf", "pyyaml", "rich",
          "tokenizers", "xxhash")  # fmt: skip
"""What compiling imports; another Python gets the versions that are installed here."""
RECIPE = """\
name: tiny
version: "1"
models:
  llm: {family: llama, source: "folder:llm", licence: Apache-2.0, context: 16, mode: fast}
  net: {family: onnx, source: "folder:net", licence: MIT}
"""


def network() -> onnx.ModelProto:
    """Convolutions with blocked kernels, a branch with weights of its own, int8."""
    random = np.random.default_rng(4)

    def weight(name: str, *dims: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.standard_normal(dims).astype(np.float32) / 8, name)

    node = helper.make_node
    branches = [
        helper.make_graph([node("MatMul", ["q", "own"], ["b"])], f"branch{index}", [],
                          [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)], [weight("own", 32, 32)])
        for index in range(2)
    ]  # fmt: skip
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1] * 4), node("Relu", ["a"], ["b0"]),
        node("Conv", ["b0", "w1"], ["c"], pads=[1] * 4), node("Add", ["b0", "c"], ["d"]),
        node("GlobalAveragePool", ["d"], ["e"]), node("Reshape", ["e", "shape"], ["f"]),
        node("DynamicQuantizeLinear", ["f"], ["g", "gs", "gz"]), node("MatMulInteger", ["g", "w2", "gz"], ["h"]),
        node("Cast", ["h"], ["i"], to=TensorProto.FLOAT), node("Mul", ["i", "gs"], ["q"]),
        node("ReduceSum", ["q"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["t"]),
        node("If", ["t"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]  # fmt: skip
    constants = [
        weight("w0", 32, 3, 3, 3), weight("w1", 32, 32, 3, 3),
        numpy_helper.from_array(random.integers(-128, 128, (32, 32), np.int8), "w2"),
        numpy_helper.from_array(np.array([1, 32]), "shape"), numpy_helper.from_array(np.array(0, np.float32), "zero"),
    ]  # fmt: skip
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32])]
    graph = helper.make_graph(nodes, "g", ports, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny language model and a tiny network."""
    from made_gguf import llama_file

    folder = tmp_path_factory.mktemp("same")
    for name in ("llm", "net"):
        (folder / name).mkdir()
        (folder / name / "LICENSE").write_text(f"terms of {name}")
    llama_file(folder / "llm")
    (folder / "net" / "net.onnx").write_bytes(network().SerializeToString())
    (folder / "tiny.yaml").write_text(RECIPE)
    return folder / "tiny.yaml"


def digest(python: str, recipe: Path, out: Path, seed: str) -> str:
    """SHA-256 of the package that `python` makes."""
    environ = {**os.environ, "PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": "1700000000", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, str(SCRIPT), str(recipe), str(out)], capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def output(*command: str) -> str:
    """What a command prints; nothing when it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def other_pythons() -> Iterator[str]:
    """Interpreters of other minor versions that this package supports: named, on the path, or pyenv's."""
    if named := os.environ.get("DPFEDGE_OTHER_PYTHON"):
        candidates = [named]
    else:
        candidates = [found for minor in (12, 13, 14) if (found := shutil.which(f"python3.{minor}"))]
        if shutil.which("pyenv"):
            versions = [
                text for text in output("pyenv", "versions", "--bare").split() if re.match(r"3\.1[2-9]\.", text)
            ]
            candidates += [f"{output('pyenv', 'prefix', text)}/bin/python" for text in versions]
    for candidate in candidates:
        if output(candidate, "-c", "import sys; print(sys.version_info[:2])") not in ("", str(sys.version_info[:2])):
            yield candidate


@pytest.fixture(scope="module")
def other() -> str:
    """Another Python with the same wheels; they are installed once, into `build/`."""
    for python in other_pythons():
        home = ROOT / "build" / f"python{output(python, '-c', 'import sys; print(*sys.version_info[:2], sep=chr(46))')}"
        made = home / "bin" / "python"
        wheels = [f"{name}=={version(name)}" for name in WHEELS]
        if not made.exists():
            subprocess.run([python, "-m", "venv", str(home)], check=True, capture_output=True)
        install = [str(made), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *wheels]
        if subprocess.run(install, capture_output=True).returncode == 0:
            return str(made)
    pytest.skip("no other Python from 3.12 on that can get the same wheels; DPFEDGE_OTHER_PYTHON names one")


def test_same_bytes__whatever_the_hash_seed(recipe: Path, tmp_path: Path) -> None:
    """Nothing depends on the order of a hash table."""
    found = {digest(sys.executable, recipe, tmp_path / f"{seed}.dpfbin", str(seed)) for seed in (1, 2, 3)}

    assert len(found) == 1


def test_same_bytes__under_another_python(recipe: Path, tmp_path: Path, other: str) -> None:
    """Two Python versions with the same libraries make the same file."""
    here = digest(sys.executable, recipe, tmp_path / "here.dpfbin", "1")

    assert digest(other, recipe, tmp_path / "there.dpfbin", "2") == here


@pytest.mark.slow
@pytest.mark.skipif(not cached("smollm2-135m-instruct-q4_1"), reason="`dpfedge models pull` has not filled the cache")
def test_same_bytes__of_the_demo(tmp_path: Path, other: str) -> None:
    """The demo package too."""
    recipe = ROOT / "examples" / "voice" / "voice.yaml"

    assert digest(other, recipe, tmp_path / "there.dpfbin", "2") == digest(
        sys.executable, recipe, tmp_path / "here.dpfbin", "1"
    )
