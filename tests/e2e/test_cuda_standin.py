# SPDX-License-Identifier: Apache-2.0
"""The whole voice pipeline on the CUDA backend over a stand-in driver: compiled, bound, started, asked.

No GPU computes here (`made_cuda.py` says what stands in for it); what is proved is everything around it: lowering of
the real models, pinned arenas, two executables for each graph, keys and values that stay on the device.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpfedge.models import cached

ROOT = Path(__file__).parents[2]
NEEDED = ("silero-vad", "moonshine-tiny-en", "smollm2-135m-instruct-q4_1", "piper-en-us-joe")
BOARD = """
title: stand-in for a GPU
vendor: any
match:
  MATCH
devices:
  - {id: gpu, kind: gpu.nvidia, name: stand-in, arch: sm_90, memory: 64GB, backends: [cuda]}
  - {id: cpu, kind: cpu, backends: [cpu]}
placement:
  decoder: {threads: 1}
  encoder: {threads: 2}
  llm: {threads: 2}
  voice: {threads: 2}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(cached, NEEDED)), reason="`dpfedge models pull` has not filled the cache"),
]


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of processes that find the stand-in plugin, library and board."""
    folder = tmp_path_factory.mktemp("standin")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("stand-ins need a C compiler")
    source = ROOT / "tests" / "unit" / "plugins" / "standins" / "cuda.c"
    library = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    info = folder / "dpfedge_cuda_standin-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dpfedge-cuda-standin\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[dpfedge]\ncuda = made_cuda\n")
    shutil.copy(Path(__file__).parent / "made" / "made_cuda.py", folder)
    (folder / "boards").mkdir()
    return {
        **os.environ,
        "PYTHONPATH": f"{folder}:{ROOT / 'plugins' / 'dpfedge-cuda'}",
        "LD_LIBRARY_PATH": str(folder),
        "DPFEDGE_PLUGINS": "cpu,cuda",
        "DPFEDGE_BOARDS": str(folder / "boards"),
    }


def dpfedge(environ: dict[str, str], *arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "dpfedge", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_voice__spoken_to(environ: dict[str, str], tmp_path: Path) -> None:
    """The real models on the stand-in; turns are answered and no tensor is copied between stages."""
    package, report = tmp_path / "voice.dpfbin", tmp_path / "bench.json"
    recipe = ROOT / "examples" / "voice" / "voice.yaml"
    board = Path(environ["DPFEDGE_BOARDS"], "standin.yaml")
    board.write_text(BOARD.replace("MATCH", 'pci: ["10de:2330"]'))
    key = str(ROOT / "build" / "demo.key")
    dpfedge(environ, "compile", str(recipe), "-o", str(package), "--board", "standin", "--sign", key)
    board.write_text(BOARD.replace("MATCH", "always: true"))  # this machine plays it
    bound = json.loads(dpfedge(environ, "bind", str(package), "--board", "standin", "--json"))
    models = {target["backend"]["name"]: set(target["models"]) for target in bound["targets"]}
    assert models["cuda"] >= {"speech", "llm", "voice"}

    command = ("bench", str(package), "--board", "standin", "--turns", "2", "--rounds", "1", "--idle", "1")
    printed = dpfedge(environ, *command, "--json", str(report))

    assert "copies of tensor bytes between stages per turn: 0" in printed
    assert report.exists()
