# SPDX-License-Identifier: Apache-2.0
"""One model as several devices would run it, all of them played by this machine's: a stand-in for their facts only.

Kernels for a GPU are compiled and run here, by a CPU; that they are right says nothing of their speed there.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from dpfedge_opencl.loading import load_on
from dpfedge_opencl.lower import lower
from dpfedge_opencl.ops.api import Facts
from dpfedge_opencl.runtime import open_runtime
from made_nodes import Array, device, node, right
from onnx import helper, numpy_helper

from dpfedge.backend.api import Budget, LowerRequest
from dpfedge.testing.cases import IR_VERSION, OPSETS
from dpfedge.testing.loading import view

FLAVOURS: Mapping[str, tuple[Facts, frozenset[str]]] = {
    "wide": (Facts("x86-64-v4", True, 2, 16, 4096), frozenset({"vnni"})),
    "avx2": (Facts("x86-64-v3", True, 2, 8, 4096), frozenset()),
    "mali": (Facts("mali-g610", False, 4, 4, 256), frozenset()),
}
BOTH = ("wide", "mali")


Judge = Callable[..., dict[str, Array]]


def onnxruntime_says(made: onnx.ModelProto, **feeds: Array) -> dict[str, Array]:
    """onnxruntime's answers, where the reference has none."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([result.name for result in made.graph.output], session.run(None, feeds), strict=True))


def one(
    op: str, feeds: Mapping[str, Array], constants: Mapping[str, Array] | None = None, outputs: int = 1,
    names: str = "", judge: Judge = right, **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one node; `names` gives the inputs' order, `-` for one that is absent (else feeds, then constants)."""
    constants = constants or {}
    order = names or " ".join((*feeds, *constants))
    made = node(op, order, " ".join(f"y{index}" for index in range(outputs)), **attrs)
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in made.output]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([made], "made", ports, results, weights)
    model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid(*o) for o in OPSETS])
    for result, array in zip(results, judge(model, **feeds).values(), strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        result.CopyFrom(helper.make_tensor_value_info(result.name, kind, array.shape))
    del model.graph.output[:]
    model.graph.output.extend(results)
    return model


def played(facts: Facts, here: Facts) -> Facts:
    """`facts` as this machine's device, `here`, plays them: vectors that its compiler does not make end the process."""
    lanes = min(facts.vector_width, here.vector_width)
    return dataclasses.replace(facts, vector_width=lanes, target=here.target if facts.cpu else "")


def answers(
    made: onnx.ModelProto, flavour: str, feeds: Mapping[str, Array], more: frozenset[str] = frozenset(), **facts: Any
) -> dict[str, Array]:
    """What the model gives as that flavour runs it."""
    backend, here = device()
    found, features = FLAVOURS[flavour]
    graph = lower(LowerRequest("made", made.SerializeToString(), found.arch, features | more))
    assert not any(what.startswith("cpu segment") for what, _ in graph.decisions), graph.decisions
    runtime = copy.copy(open_runtime(here))
    runtime.facts = played(dataclasses.replace(found, **facts), runtime.facts)
    executable = load_on(view(backend, graph, "made"), runtime, Budget())
    result = {name: np.array(array) for name, array in executable.run(feeds).items()}
    executable.close()
    return result


def agree(
    made: onnx.ModelProto, flavour: str, feeds: Mapping[str, Array], tolerance: float = 1e-5, judge: Judge = right
) -> None:
    """Assert that this flavour's answers are the judge's within this share of the largest value."""
    wanted = judge(made, **feeds)
    for name, array in answers(made, flavour, feeds).items():
        assert array.shape == wanted[name].shape
        assert array.dtype == wanted[name].dtype
        if array.size:
            away = np.abs(array.astype(np.float64) - wanted[name].astype(np.float64)).max()
            assert away <= tolerance * max(float(np.abs(wanted[name]).max()), 1e-30), (name, away)


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Normal numbers."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * scale, np.float32)
