# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's 8-bit matrix products against whole-number arithmetic; prints how many sums are wrong, by sign.

Run by `check.sh` on an emulated x86 without VNNI, where AVX2 adds pairs of products in 16 bits: exit 1 unless sums of
u8·s8 are wrong there and those of u8·u8, which the compiler chooses for such CPUs, are all right.
"""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROWS, DEPTH, COLUMNS = 32, 256, 64


def wrong(dtype: type[np.int8] | type[np.uint8]) -> int:
    """Sums that differ, of ROWS × COLUMNS."""
    random, limits = np.random.default_rng(7), np.iinfo(dtype)
    left = random.integers(0, 256, (ROWS, DEPTH)).astype(np.uint8)
    right = random.integers(limits.min, limits.max + 1, (DEPTH, COLUMNS)).astype(dtype)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [ROWS, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [ROWS, COLUMNS])],
        [numpy_helper.from_array(right, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": left})
    return int((np.asarray(found) != left.astype(np.int64) @ right.astype(np.int64)).sum())


if __name__ == "__main__":
    signed, unsigned = wrong(np.int8), wrong(np.uint8)
    print(f"of {ROWS * COLUMNS} sums, u8·s8 has {signed} wrong, u8·u8 {unsigned}")
    sys.exit(not signed or bool(unsigned))
