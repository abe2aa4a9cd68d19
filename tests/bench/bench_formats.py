# SPDX-License-Identifier: Apache-2.0
"""Weight formats of the demo's llm: size, perplexity and decode speed of each; and one product in each form.

Usage: python tests/bench/bench_formats.py [rounds] [threads]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from peers import bound, header, rounds, show

from dpfedge.backend.api import Budget, Executable, GraphView, LowerRequest
from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.registry import Registry
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.formats import Form
from dpfedge.compiler.graph_formats import in_form
from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.compiler.quantise import int8
from dpfedge.compiler.recipe import load_recipe
from dpfedge.tensors import TensorSpec

FORMATS = ("keep", "int8", "int4", "int4-asymmetric")
TOKENS, CONTEXT = 64, 512
RECIPE = """\
name: formats
version: "1"
models:
  llm: {{family: decoder, source: "catalogue:smollm2-135m-instruct-q4_1", context: {context}, weights: {weights}}}
"""
WIDTH, OUTPUTS = 576, 1536


def packages(folder: Path) -> dict[str, Path]:
    """The llm in each format, compiled for this machine."""
    found = {}
    for weights in FORMATS:
        recipe = folder / f"{weights}.yaml"
        recipe.write_text(RECIPE.format(context=CONTEXT, weights=weights))
        found[weights] = folder / f"{weights}.dpfbin"
        compile_package(load_recipe(recipe), found[weights], boards=["host"], registry=Registry.load())
        print(f"compiled {weights}", file=sys.stderr)
    return found


def decode(package: Path, threads: int) -> Callable[[], float]:
    """Seconds per token of TOKENS steps from an empty cache."""
    graph = bound(str(package)).model("llm").load("llm", Budget(threads=threads))
    run, mask = graph.bind(), np.ones((1, TOKENS), np.int64)
    for spec in graph.inputs:
        if spec.name.startswith("past_key_values."):
            memory = np.zeros([int(size) for size in spec.dims], np.float32)
            run.set_input(spec.name, memory)
            run.set_output(spec.name.replace("past_key_values", "present"), memory)

    def steps() -> float:
        started = time.perf_counter()
        for count in range(1, TOKENS + 1):
            run.set_input("input_ids", np.array([[1000 + count]], np.int64))
            run.set_input("attention_mask", mask[:, :count])
            run.run()
        return (time.perf_counter() - started) / TOKENS

    return steps


def describe(packages: dict[str, Path], spent: dict[str, list[float]]) -> None:
    """The table: size and quality from the packages, speed from the rounds."""
    print(
        f"{'':16s}" + "".join(f"{title:>12s}" for title in ("weights MiB", "perplexity", "rel_l2", "tokens/s", "ratio"))
    )
    base, rows, plain = np.array(spent["keep"]), [], 0.0
    for name, path in packages.items():
        manifest = bound(str(path)).package.manifest
        size = sum(section.size for section in manifest.sections if section.kind == "weights") / 2**20
        figures = manifest.models["llm"].config.get("formats", {}).get(name, {})
        plain = figures.get("perplexity_before", plain)
        ratio = float(np.median(base / np.array(spent[name])))
        rows.append((name, size, figures.get("perplexity_after"), figures.get("rel_l2", 0.0), spent[name], ratio))
    for name, size, perplexity, moved, seconds, ratio in rows:
        quality = plain if perplexity is None else perplexity
        print(f"{name:16s}{size:12.1f}{quality:12.1f}{moved:12.3f}{1 / np.median(seconds):12.1f}{ratio:12.2f}")


def product(model: onnx.ModelProto, rows: int) -> Callable[[], float]:
    """Seconds of one product with `rows` rows, lowered for this machine."""
    facts, backend = cpu_facts("/"), Registry.load().get("cpu")
    lowered = backend.lower(LowerRequest("product", model.SerializeToString(), facts.level, facts.features))
    data, places = bytearray(), {}
    for name, array in lowered.weights.items():
        data += bytes(-len(data) % 64)
        places[name] = ("weights", len(data), array.nbytes)
        data += array.tobytes()
    view = GraphView("product", memoryview(backend.finish(lowered, places)), lowered.inputs, lowered.outputs,
                     {"weights": memoryview(bytes(data))})  # fmt: skip
    graph: Executable = backend.load(view, backend.devices(Path("/"))[0], Budget())
    x = np.random.default_rng(rows).standard_normal((rows, WIDTH)).astype(np.float32)

    def run() -> float:
        started = time.perf_counter()
        for _ in range(20):
            graph.run({"x": x})
        return (time.perf_counter() - started) / 20

    return run


def products() -> dict[str, onnx.ModelProto]:
    """x[n,576]·w[576,1536] in each form."""
    matrix: Any = np.random.default_rng(0).standard_normal((WIDTH, OUTPUTS)).astype(np.float32)
    ports = [TensorSpec("x", "f32", ("n", WIDTH))], [TensorSpec("y", "f32", ("n", OUTPUTS))]
    nodes = Nodes("product")
    nodes.add("MatMul", ["x", nodes.constant("w", matrix)], "y")
    plain = nodes.model(*ports)
    blocks, nodes = int8(np.ascontiguousarray(matrix.T)), Nodes("product")
    inputs = ["x", nodes.constant("codes", blocks.codes), nodes.constant("scales", blocks.scales)]
    nodes.add("MatMulNBits", inputs, "y", domain=MICROSOFT, K=WIDTH, N=OUTPUTS, bits=8, block_size=32, accuracy_level=4)
    forms = {name: in_form(plain, Form(name))[0] for name in ("int8", "int4", "int4-asymmetric")}
    return {"float32": plain, "int8 in blocks (decoders)": nodes.model(*ports), **forms}


def main() -> None:
    """Both tables."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    header()
    for rows in (1, 64):
        engines = {name: product(model, rows) for name, model in products().items()}
        show(f"one product 576 → 1536, {rows} row(s), 1 thread", rounds(count, engines), "float32", "µs", 1e6)
    with tempfile.TemporaryDirectory() as folder:
        made = packages(Path(folder))
        print(f"\nSmolLM2 135M from its Q4_1 file, {threads} thread(s), {TOKENS} tokens")
        describe(made, rounds(count, {name: decode(path, threads) for name, path in made.items()}))


if __name__ == "__main__":
    main()
