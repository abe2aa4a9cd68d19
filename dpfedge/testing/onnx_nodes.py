# SPDX-License-Identifier: Apache-2.0
"""The ONNX project's own tests of operators (`onnx.backend.test`) on a backend: a backend in, an outcome for each out.

They are what others hold right; our suite and reference have no part in them. Their graphs are one operator each.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import onnx
from onnx import numpy_helper

from dpfedge.backend.api import Backend, Device
from dpfedge.errors import BackendError, Unsupported
from dpfedge.records import dataclass
from dpfedge.testing.loading import load

__all__ = ["Outcome", "State", "node_tests", "table"]

State = Literal["right", "wrong", "refused", "unsupported", "any"]
STATES: Sequence[State] = ("right", "wrong", "refused", "unsupported", "any")
_RANDOM = frozenset({"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one of ONNX's tests."""

    op: str
    test: str
    state: State
    """`refused` is a BackendError that does not say it is for good; `any`: the operator draws, no answer is wrong."""
    reason: str = ""


@lru_cache(maxsize=1)
def _tests() -> Sequence[Any]:
    """Made anew by `onnx`, which takes seconds, and can be done once in a process."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():  # they compute with infinities
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind="node"))


def node_tests(backend: Backend, device: Device) -> Iterator[Outcome]:
    """Each of the tests; an error of a backend that is none of ours passes through."""
    for test in _tests():
        state, reason = _outcome(backend, device, test)
        drawn = state == "wrong" and any(node.op_type in _RANDOM for node in test.model.graph.node)
        yield Outcome(_operator(test), test.name, "any" if drawn else state, reason)


def _operator(test: Any) -> str:
    nodes = test.model.graph.node
    return str(nodes[0].op_type) if len(nodes) == 1 else f"{nodes[-1].op_type}…"


def _outcome(backend: Backend, device: Device, test: Any) -> tuple[State, str]:
    try:
        executable = load(backend, device, test.model)
        for inputs, wanted in test.data_sets:
            names = [spec.name for spec in executable.inputs]
            feeds = dict(zip(names, map(_array, inputs), strict=True))
            found = executable.run(feeds)
            if off := _off(list(found.values()), [_array(one) for one in wanted], test):
                return "wrong", off
        executable.close()
    except Unsupported as error:
        return "unsupported", str(error)
    except BackendError as error:
        return "refused", str(error)
    return "right", ""


def _array(value: Any) -> Any:
    """The tests hold arrays, and the protos of dtypes that NumPy lacks."""
    array = np.asarray(numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value)
    return np.ascontiguousarray(array).reshape(array.shape)


def _off(found: Sequence[Any], wanted: Sequence[Any], test: Any) -> str:
    for index, (one, right) in enumerate(zip(found, wanted, strict=True)):
        if one.dtype != right.dtype or one.shape != right.shape:
            return f"output {index} is {one.dtype}{list(one.shape)} instead of {right.dtype}{list(right.shape)}"
        with np.errstate(all="ignore"):
            if not np.allclose(one, right, rtol=test.rtol, atol=test.atol, equal_nan=True):
                return f"output {index} is off by {np.max(np.abs(one.astype(float) - right.astype(float))):.3g}"
    return ""


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """One line for each operator with the number of tests in each state, and the sum."""
    rows: defaultdict[str, Counter[State]] = defaultdict(Counter)
    for outcome in outcomes:
        rows[outcome.op][outcome.state] += 1
    total = sum(rows.values(), Counter[State]())
    lines = [f"{'operator':32}" + "".join(f"{state:>13}" for state in STATES)]
    for op, row in [*sorted(rows.items()), ("all", total)]:
        lines.append(f"{op:32}" + "".join(f"{row[state] or '':>13}" for state in STATES))
    return lines
