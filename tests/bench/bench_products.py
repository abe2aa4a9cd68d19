# SPDX-License-Identifier: Apache-2.0
"""Products with 4- and 8-bit blocks: our own operator beside onnxruntime's MatMulNBits of levels 4 and 0, by shape.

Each graph has more matrices than the last-level cache holds, as a language model's step reads them. Times are of one
product. Usage: python tests/bench/bench_products.py [rounds]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
from dpfedge_cpu.kernels import register
from dpfedge_cpu.products import own_products
from dpfedge_cpu.session import runtime, session_options
from peers import header, rounds, show

from dpfedge.backend.api import Budget
from dpfedge.compiler.blocks import Blocks
from dpfedge.compiler.decoder.linear import Linear, Weight
from dpfedge.compiler.nodes import Nodes
from dpfedge.tensors import TensorSpec

SHAPES = ((576, 576, 4), (960, 576, 4), (3072, 576, 4), (576, 1536, 4), (49152, 576, 8))
MATRICES_BYTES = 48 << 20


def matrix(rows: int, columns: int, bits: int) -> Blocks:
    """Random blocks of 32; those of 4 bits with offsets, as a Q4_1 file has."""
    random = np.random.default_rng(bits)
    blocks = columns // 32
    scales = random.normal(0, 0.01, (rows, blocks)).astype(np.float16).astype(np.float32)
    minima = random.normal(0, 0.05, (rows, blocks)).astype(np.float16).astype(np.float32)
    codes = random.integers(0, 256, (rows, blocks, 4 * bits), np.uint8)
    return Blocks(bits, codes, scales, 8 * scales + minima if bits == 4 else None)


def graph(rows: int, columns: int, bits: int, level: int) -> tuple[onnx.ModelProto, int]:
    """A graph of products with one x, and how many."""
    count = -(-MATRICES_BYTES // (rows * columns * bits // 8))
    nodes = Nodes("products")
    linear, weight = Linear(nodes, level), Weight(matrix(rows, columns, bits))
    names = [linear.product(f"y{place}", "x", weight) for place in range(count)]
    ports = [TensorSpec(name, "f32", ("n", rows)) for name in names]
    return nodes.model([TensorSpec("x", "f32", ("n", columns))], ports), count


def engine(model: onnx.ModelProto, count: int, x: np.ndarray, threads: int) -> Callable[[], float]:
    """Seconds of one product."""
    options = session_options(Budget(threads=threads))
    register(options)
    session = runtime().InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run() -> float:
        started = time.perf_counter()
        session.run(None, {"x": x})
        return (time.perf_counter() - started) / count

    return run


def main() -> None:
    """One table for each shape, number of rows of x and number of threads."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    header()
    for rows, columns, bits in SHAPES:
        for tokens in (1, 128) if bits == 4 else (1,):
            for threads in (1, 2):
                x = np.random.default_rng(0).standard_normal((tokens, columns)).astype(np.float32)
                engines = {}
                for title, level in (("own operator", 4), ("MatMulNBits, 8 bits", 4), ("MatMulNBits, floats", 0)):
                    model, products = graph(rows, columns, bits, level)
                    if title == "own operator":
                        own_products(model)
                    engines[title] = engine(model, products, x, threads)
                found = rounds(count, engines)
                title = f"{rows}×{columns}, {bits} bits, {tokens} rows of x, threads: {threads}"
                show(title, found, "own operator", unit="µs", scale=1e6)


if __name__ == "__main__":
    main()
