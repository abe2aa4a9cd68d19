# SPDX-License-Identifier: Apache-2.0
"""Package → executables ready for every demo model, one process and one thread, beside plain onnxruntime.

Plain: `InferenceSession(path)` with its default optimisations for each original file: Silero's .onnx, Moonshine's two
.ort files, Piper's .onnx, and for the language model, which no original file gives to onnxruntime, the decoder as
the importer exports it, in one .onnx file. Ours: opening and binding the package and loading every graph, with and
without a seal. A process for each measurement, interleaved; imports of onnxruntime, NumPy and dpfedge lie before the
clock on both sides. Wall time, and processor time, which a busy machine disturbs less; the profile is processor
time by parts, and what packing takes is the difference to loading with nothing packed.

Usage: python tests/bench/bench_load.py build/voice.dpfbin [rounds]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from peers import header, rounds, show

RECIPE = Path(__file__).parents[2] / "examples" / "voice" / "voice.yaml"


def originals(folder: Path) -> dict[str, list[str]]:
    """Model → its original files; the language model's decoder is exported into `folder`."""
    from dpfedge.compiler.families import FAMILIES, Options
    from dpfedge.compiler.recipe import load_recipe
    from dpfedge.compiler.sources import find_files

    found: dict[str, list[str]] = {}
    for source in load_recipe(RECIPE).models:
        paths = find_files(source, RECIPE.parent).paths
        if source.family == "llama":
            imported = FAMILIES["llama"].load(paths, Options("fast", source.context))
            path = folder / "llm.onnx"
            path.write_bytes(imported.graphs["llm"].SerializeToString())
            found[source.name] = [str(path)]
        else:
            found[source.name] = [str(path) for path in paths.values() if path.suffix in (".onnx", ".ort")]
    return found


def plain(files: dict[str, list[str]]) -> dict[str, float]:
    """Processor seconds of each model, in this process."""
    import onnxruntime

    spent, held = {}, []
    for model, paths in files.items():
        started = time.process_time()
        for path in paths:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.log_severity_level = 1, 3
            held.append(onnxruntime.InferenceSession(path, options))
        spent[model] = time.process_time() - started
    return spent


def warm() -> None:
    """Import what `ours` needs."""
    from dpfedge_cpu import session  # noqa: F401

    from dpfedge.binding import bind_here  # noqa: F401
    from dpfedge.plugin.manager import load_plugins

    load_plugins()


def ours(package: str, *, sidecar: bool, unpacked: bool = False) -> dict[str, float]:
    """Processor seconds of opening and binding, and of each model; `unpacked` is for the profile."""
    from dpfedge.backend.api import Budget
    from dpfedge.binding import bind_here
    from dpfedge.package import open_package

    started = time.process_time()
    bound = bind_here(open_package(Path(package), check="fast"), sidecar=sidecar)
    spent, held = {"open and bind": time.process_time() - started}, []
    for name in bound.models:
        started = time.process_time()
        model = bound.model(name)
        if unpacked:
            more = {"session": {"session.disable_prepacking": "1"}}
            graphs = {key: replace(graph, options={**graph.options, **more}) for key, graph in model._graphs.items()}
            model = replace(model, _graphs=graphs)
        held += [model.load(graph, Budget()) for graph in model.graphs]
        spent[name] = time.process_time() - started
    return spent


def child(request: dict[str, Any]) -> dict[str, Any]:
    """The measurement of one fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(request)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """One table of totals, one of parts."""
    if sys.argv[1] == "--child":
        request = json.loads(sys.argv[2])
        import onnxruntime  # noqa: F401

        if "files" not in request:
            warm()
        started = time.perf_counter()
        spent = plain(request["files"]) if "files" in request else ours(**request)
        print(json.dumps({"wall": time.perf_counter() - started, "parts": spent}))
        return
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    header()
    with tempfile.TemporaryDirectory(prefix="dpfedge-bench-") as name:
        folder = Path(name)
        package = folder / "voice.dpfbin"
        shutil.copy(sys.argv[1], package)
        subprocess.run(
            [sys.executable, "-m", "dpfedge", "seal", str(package), "--json"], check=True, capture_output=True
        )
        requests: dict[str, dict[str, Any]] = {
            "dpfedge": {"package": str(package), "sidecar": False},
            "dpfedge, sealed": {"package": str(package), "sidecar": True},
            "dpfedge, nothing packed": {"package": str(package), "sidecar": False, "unpacked": True},
            "plain onnxruntime": {"files": originals(folder)},
        }
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in requests}

        def measure(name: str) -> float:
            runs[name].append(child(requests[name]))
            return float(runs[name][-1]["wall"])

        found = rounds(count, {name: lambda name=name: measure(name) for name in requests})  # type: ignore[misc]
        parts = {name: [row["parts"] for row in rows[1:]] for name, rows in runs.items()}
        show("package → executables, one thread, wall", found, "dpfedge")
        show("the same, processor time", totals(parts), "dpfedge")
        show("the same, without the language model", totals(parts, "llm"), "dpfedge")
        profile(parts)


def totals(parts: dict[str, list[dict[str, float]]], without: str = "") -> dict[str, list[float]]:
    """Seconds of all parts together."""
    return {
        name: [sum(value for part, value in row.items() if part != without) for row in rows]
        for name, rows in parts.items()
    }


def profile(parts: dict[str, list[dict[str, float]]]) -> None:
    """Median of each part."""
    print("\nwhere it goes, ms of processor time (median)")
    names = list(parts["dpfedge"][0])
    print(f"  {'':16s}" + "".join(f"{side:>26s}" for side in parts))
    for name in names:
        values = [sorted(row.get(name, 0.0) for row in rows)[len(rows) // 2] * 1e3 for rows in parts.values()]
        print(f"  {name:16s}" + "".join(f"{value:26.1f}" for value in values))


if __name__ == "__main__":
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    main()
