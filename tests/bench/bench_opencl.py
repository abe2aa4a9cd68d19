# SPDX-License-Identifier: Apache-2.0
"""The OpenCL backend beside onnxruntime's CPU provider with two threads, turn about in one run, on one machine.

    python tests/bench/bench_opencl.py [--models DIR] [--rounds 15] [--only NAME,…] [--json FILE]

Shapes: products of the demo models' sizes, twelve nodes of a size in one graph. Models: every graph that
`dpfedge compile` hands to a backend for the example packages, with the golden samples as inputs; they are kept in DIR
(compiled first when it is empty). A ratio is onnxruntime's time over ours: `median` of the rounds' ratios, `best` of
the least times, which say more on a busy machine. `err` is the largest difference as a share of the largest value.
Buffers are bound in place on both sides. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from dpfedge_opencl import OpenClBackend
from onnx import helper, numpy_helper

from dpfedge.backend.api import Budget, LowerRequest
from dpfedge.bench.measure import machine
from dpfedge.testing.loading import view

Array = np.ndarray[Any, np.dtype[Any]]
ROOT = Path(__file__).parents[2]
EXAMPLES = {"voice": "examples/voice/voice.yaml", "ocr": "examples/camera-ocr/camera-ocr.yaml"}
THREADS = 2
PAUSE_S = 0.1  # onnxruntime's threads spin for 45 ms after a run: on two cores one of them would be on one of ours
_NODES = 12
_RANDOM = np.random.default_rng(0)
_KINDS = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(int32)": "i4", "tensor(uint8)": "u1"}


def _floats(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _row(
    op: str, feeds: Mapping[str, Array], constants: Sequence[Mapping[str, Array]], **attrs: Any
) -> onnx.ModelProto:
    """A model of nodes beside one another, each with weights of its own: a call costs little, and caches are cold."""
    domain = "com.microsoft" if op == "MatMulNBits" else ""
    nodes, weights = [], []
    for index, own in enumerate(constants):
        names = [*feeds, *(f"{name}{index}" for name in own)]
        nodes.append(helper.make_node(op, names, [f"y{index}"], f"n{index}", domain=domain, **attrs))
        weights += [numpy_helper.from_array(array, f"{name}{index}") for name, array in own.items()]
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(node.output[0], 1, None) for node in nodes]
    graph = helper.make_graph(nodes, "n", ports, results, weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def _blocks(n: int, k: int) -> dict[str, Array]:
    codes = _RANDOM.integers(0, 256, (n, k // 32, 16)).astype(np.uint8)
    return {"w": codes, "s": np.abs(_floats(n, k // 32)) * np.float32(0.05)}


def shapes() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    """Name, model, feeds of products of one shape, _NODES of them in a row."""
    for m, n, k in ((1, 576, 576), (1, 3072, 576), (20, 960, 576), (128, 1536, 576), (24, 18710, 120)):
        feeds = {"a": _floats(m, k)}
        yield f"gemm f32 {m}x{n}x{k}", _row("MatMul", feeds, [{"b": _floats(k, n)} for _ in range(_NODES)]), feeds
    for level in (0, 4):
        for m, n, k in ((1, 576, 576), (1, 960, 576), (1, 3072, 576), (1, 576, 1536), (8, 3072, 576)):
            feeds, attrs = {"a": _floats(m, k)}, {"K": k, "N": n, "bits": 4, "block_size": 32, "accuracy_level": level}
            made = _row("MatMulNBits", feeds, [_blocks(n, k) for _ in range(_NODES)], **attrs)
            yield f"q4 level {level} {m}x{n}x{k}", made, feeds
    for x, w, attrs in (
        ((1, 192, 12, 12), (384, 192, 1, 1), {}),
        ((1, 96, 24, 24), (96, 1, 7, 7), {"group": 96, "pads": [3] * 4}),
        ((1, 96, 24, 24), (24, 96, 3, 3), {"pads": [1] * 4}),
        ((1, 64, 1024), (64, 64, 7), {"pads": [36, 36], "dilations": [12]}),
    ):
        feeds = {"x": _floats(*x)}
        weights = [{"w": _floats(*w), "b": _floats(w[0])} for _ in range(_NODES)]
        yield f"conv {x} {w}", _row("Conv", feeds, weights, **attrs), feeds


def captured(folder: Path) -> None:
    """Compile the examples and keep what a backend is given: models, options and golden samples."""
    from dpfedge_cpu.backend import CpuBackend

    from dpfedge.cli import main
    from dpfedge.compiler import emit

    lower, make_cases, example = CpuBackend.lower, emit.make_cases, ""

    def kept(self: CpuBackend, request: LowerRequest) -> Any:
        (folder / f"{example}.{request.name}.onnx").write_bytes(request.onnx)
        return lower(self, request)

    def cases(model: str, *more: Any, **options: Any) -> Any:
        made = make_cases(model, *more, **options)
        for index, case in enumerate(made[0]):
            np.savez(folder / f"{example}.{model}.{case.graph}.feeds{index}.npz", **case.feeds)
        return made

    CpuBackend.lower, emit.make_cases = kept, cases  # type: ignore[method-assign,assignment]
    arguments = sys.argv
    with tempfile.TemporaryDirectory() as scratch:
        for example, path in EXAMPLES.items():
            sys.argv = ["dpfedge", "compile", str(ROOT / path), "-o", f"{scratch}/{example}.dpfbin", "--board", "host"]
            if main():
                raise SystemExit(f"compiling {path} failed")
    sys.argv = arguments
    CpuBackend.lower, emit.make_cases = lower, make_cases  # type: ignore[method-assign]


def models(folder: Path) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    """Name, model, feeds of every graph of the examples; inputs that no sample gives are zeros (caches)."""
    if not any(folder.glob("*.onnx")):
        folder.mkdir(parents=True, exist_ok=True)
        captured(folder)
    for path in sorted(folder.glob("*.onnx")):
        for sample in sorted(folder.glob(f"{path.stem}.feeds*.npz")):
            yield f"{path.stem} {sample.suffixes[-2][1:]}", onnx.load(path), dict(np.load(sample))


def session_of(made: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime as it comes, with two threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def calls(made: onnx.ModelProto, feeds: dict[str, Array], backend: Any, here: Any) -> tuple[Any, Any, float]:
    """Both sides as one call each, with every buffer bound, and how far ours is from theirs."""
    session = session_of(made)
    for port in session.get_inputs():
        sizes = [size if isinstance(size, int) else 1 for size in port.shape]
        feeds.setdefault(port.name, np.zeros(sizes, _KINDS[port.type]))
    names = [port.name for port in session.get_outputs()]
    wanted = dict(zip(names, session.run(names, feeds), strict=True))
    request = LowerRequest(made.graph.name, made.SerializeToString(), here.arch, here.features)
    executable = backend.load(view(backend, backend.lower(request), "bench"), here, Budget(threads=THREADS))
    found = executable.run(feeds)
    away = max(
        float(np.abs(found[name].astype(np.float64) - wanted[name]).max() / max(np.abs(wanted[name]).max(), 1e-9))
        for name in names
        if wanted[name].size
    )
    call, io = executable.bind(), session.io_binding()
    for name, array in feeds.items():
        call.set_input(name, array)
        io.bind_cpu_input(name, array)
    for name in names:
        past = name.replace("present", "past_key_values")
        shared = feeds[past] if past != name and past in feeds and feeds[past].shape == wanted[name].shape else None
        for side in ("ours", "theirs"):
            array = np.empty_like(wanted[name]) if shared is None else shared
            if side == "ours":
                call.set_output(name, array)
            else:
                io.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
                wanted[name] = array  # keeps it alive
    return call.run, lambda kept=(session, wanted, executable): kept[0].run_with_iobinding(io), away


def measured(ours: Any, theirs: Any, rounds: int) -> dict[str, float]:
    """Medians in milliseconds and both ratios; a round of short calls has many of them.

    Each side begins on cores where nobody spins any more, with a run that does not count.
    """
    for run in (ours, theirs, ours, theirs):
        run()
    started = time.perf_counter()
    theirs()
    times = max(1, min(50, int(0.005 / (time.perf_counter() - started))))
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        for name, run in (("ours", ours), ("theirs", theirs)):
            time.sleep(PAUSE_S)
            run()
            started = time.perf_counter()
            for _ in range(times):
                run()
            found[name].append((time.perf_counter() - started) / times)
    ratios = [b / a for a, b in zip(found["ours"], found["theirs"], strict=True)]
    return {
        "ours_ms": float(np.median(found["ours"])) * 1e3, "onnxruntime_ms": float(np.median(found["theirs"])) * 1e3,
        "ratio": float(np.median(ratios)), "best": min(found["theirs"]) / min(found["ours"]),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "bench-opencl")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    backend = OpenClBackend()
    here = backend.devices(Path("/"))[0]
    print(f"{here.name}; onnxruntime {onnxruntime.__version__}, {THREADS} threads\n")
    result: dict[str, Any] = {"machine": machine(), "device": here.name, "rows": {}}
    only = [part for part in chosen.only.split(",") if part]
    for name, made, feeds in (*shapes(), *models(chosen.models)):
        if only and not any(part in name for part in only):
            continue
        ours, theirs, away = calls(made, feeds, backend, here)
        row = measured(ours, theirs, chosen.rounds) | {"err": away}
        result["rows"][name] = row
        print(
            f"{name:44s} ours {row['ours_ms']:9.3f} ms  onnxruntime {row['onnxruntime_ms']:9.3f} ms  "
            f"median {row['ratio']:5.2f}  best {row['best']:5.2f}  err {away:.1e}", flush=True,
        )  # fmt: skip
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
