# SPDX-License-Identifier: Apache-2.0
"""The golden run: a bound package in, how far each graph's answers on this machine are from the recorded ones out.

It finds what digests cannot: a device, driver or library that computes something else, and weights that were damaged
before they were signed. Graphs are loaded one after the other; of each model only records of its own target are run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dpfedge.backend.api import Array, Binding, Budget, Executable
from dpfedge.binding.bound import Bound
from dpfedge.errors import BackendError
from dpfedge.package.golden import Golden, GoldenTensor
from dpfedge.plugin.border import Contract
from dpfedge.records import dataclass

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "GoldenAnswer",
    "GoldenResult",
    "errors_between",
    "golden_answers",
    "golden_inputs",
    "require_golden",
    "run_golden",
    "within",
]


@dataclass(frozen=True, slots=True)
class GoldenResult:
    """One output compared: the errors found and those allowed (None: that error does not count).

    `max_abs` is the largest difference of an element, `rel_l2` the norm of all differences over the norm of the
    recorded values; both are infinite when a value is no number or the shape is another one.
    """

    model: str
    graph: str
    case: int
    """0 for the graph's first record, 1 for its second."""
    port: str
    max_abs: float
    rel_l2: float
    max_abs_allowed: float | None
    rel_l2_allowed: float | None

    @property
    def passed(self) -> bool:
        """Whether every error that counts is within its bound."""
        return within((self.max_abs, self.rel_l2), (self.max_abs_allowed, self.rel_l2_allowed))

    @property
    def excess(self) -> float:
        """How many times the allowed error was found; above 1 fails."""
        pairs = ((self.max_abs, self.max_abs_allowed), (self.rel_l2, self.rel_l2_allowed))
        shares = [
            found / allowed if allowed else math.inf * (found > 0) for found, allowed in pairs if allowed is not None
        ]
        return max((share for share in shares if share == share), default=0.0 if self.passed else math.inf)

    def to_map(self) -> dict[str, Any]:
        """The result as JSON values; what is not finite becomes null."""
        values = {**asdict(self), "passed": self.passed}
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }


@dataclass(frozen=True, slots=True)
class GoldenAnswer:
    """One output compared, and what this machine computed of it: the recorded box, or all of an output whose shape is
    another one. The values are a copy."""

    result: GoldenResult
    values: Array


def run_golden(bound: Bound, budget: Budget | None = None) -> tuple[GoldenResult, ...]:
    """Run the golden records of each model's target within `budget` (one thread); BackendError when a graph cannot run.

    A package without records gives no results.
    """
    return tuple(answer.result for answer in golden_answers(bound, budget))


def golden_answers(bound: Bound, budget: Budget | None = None) -> Iterator[GoldenAnswer]:
    """As `run_golden`, one output after the other, with its values."""
    groups: dict[tuple[str, str], list[Golden]] = {}
    for record in bound.package.manifest.golden:
        if _is_for(bound, record):
            groups.setdefault((record.model, record.graph), []).append(record)
    for (model, graph), records in groups.items():
        yield from _run_graph(bound, model, graph, records, budget or Budget())


def _is_for(bound: Bound, record: Golden) -> bool:
    """Whether the record holds for the target that its model is bound to."""
    place = bound.places.get(record.model)
    if place is None or record.target not in (None, place.target.id):
        return False
    return record.graph in place.target.models[record.model].graphs


def golden_inputs(bound: Bound, model: str, graph: str) -> list[dict[str, Array]]:
    """The recorded inputs of one graph, in the mapped package; what is not recorded (an empty cache) is zeros."""
    import numpy as np

    found = []
    ports = bound.places[model].target.models[model].graphs[graph].inputs
    for record in bound.package.manifest.golden:
        if (record.model, record.graph) == (model, graph) and _is_for(bound, record):
            feeds = {name: _values(bound, record.section, tensor) for name, tensor in record.inputs.items()}
            blank = {port.name: port for port in ports if port.name not in feeds}
            feeds |= {name: np.zeros([int(dim) for dim in port.dims], port.numpy) for name, port in blank.items()}
            found.append(feeds)
    return found


def require_golden(bound: Bound, budget: Budget | None = None) -> tuple[GoldenResult, ...]:
    """`run_golden`, but BackendError names the worst port when one failed."""
    results = run_golden(bound, budget)
    failed = [result for result in results if not result.passed]
    if failed:
        worst = max(failed, key=lambda result: result.excess)
        target = bound.places[worst.model].target.id
        raise BackendError(
            f"golden run failed on {len(failed)} of {len(results)} outputs",
            where=f"{bound.package.path}: target {target}: {worst.model}.{worst.graph}: {worst.port}",
            found=f"max_abs {worst.max_abs:.3g}, rel_l2 {worst.rel_l2:.3g}",
            allowed=f"max_abs {_shown(worst.max_abs_allowed)}, rel_l2 {_shown(worst.rel_l2_allowed)}",
            remedy="fetch the package again; if it stays so, this machine computes wrongly: see `dpfedge verify --run`",
        )
    return results


def _shown(bound: float | None) -> str:
    return "any" if bound is None else f"{bound:.3g}"


def _run_graph(bound: Bound, model: str, graph: str, records: list[Golden], budget: Budget) -> Iterator[GoldenAnswer]:
    contract = Contract(f"backend {bound.places[model].target.backend}: {model}.{graph}")
    with contract:
        executable = bound.model(model).load(graph, budget)
    try:
        for case, record in enumerate(records):
            with contract:
                call = _call(bound, executable, record)
                call.run()
            for port, tensor in record.outputs.items():
                found, errors = _compare(call.output(port), _values(bound, record.section, tensor), tensor)
                result = GoldenResult(model, graph, case, port, *errors, tensor.max_abs, tensor.rel_l2)
                yield GoldenAnswer(result, found.copy())
    finally:
        executable.close()


def _call(bound: Bound, executable: Executable, record: Golden) -> Binding:
    """A call with every input bound, and outputs in place where the record says so."""
    import numpy as np

    call = executable.bind()
    blank: dict[str, Array] = {}
    for port in executable.inputs:
        tensor = record.inputs.get(port.name)
        if tensor is None:
            # zeros cost no memory until they are written: a key cache is mostly such
            blank[port.name] = np.zeros([int(dim) for dim in port.dims], port.numpy)
        call.set_input(port.name, blank[port.name] if tensor is None else _values(bound, record.section, tensor))
    for port in executable.outputs:
        source = record.in_place_of(port.name)
        if source is None:
            continue
        if source not in blank:
            where = f"{bound.package.path}: golden {record.model}.{record.graph}"
            raise BackendError("no empty input to write into", where=where, found=source, allowed=", ".join(blank))
        call.set_output(port.name, blank[source])
    return call


def _values(bound: Bound, section: str, tensor: GoldenTensor) -> Array:
    """The recorded values, in the mapped package."""
    import numpy as np

    from dpfedge.tensors import TensorSpec

    view = bound.package.section(section)[tensor.offset : tensor.offset + tensor.size]
    return np.frombuffer(view, TensorSpec("", tensor.dtype).numpy).reshape(tensor.dims)


def _compare(found: Array, wanted: Array, tensor: GoldenTensor) -> tuple[Array, tuple[float, float]]:
    """The recorded part of an output, or all of it when its shape is another one, and its errors."""
    if found.shape != tensor.whole:
        return found, (math.inf, math.inf)
    box = found[tuple(slice(start, start + size) for start, size in zip(tensor.at, tensor.dims, strict=True))]
    return box, errors_between(box, wanted)


def within(errors: tuple[float, float], allowed: tuple[float | None, float | None]) -> bool:
    """Whether (max_abs, rel_l2) are within what is allowed; None allows anything, two of them nothing."""
    if allowed == (None, None):
        return errors[0] == 0
    return all(most is None or error <= most for error, most in zip(errors, allowed, strict=True))


def errors_between(found: Array, wanted: Array) -> tuple[float, float]:
    """(largest difference, L2 norm of all differences over that of `wanted`); infinite for other shapes and types.

    Integers and booleans are compared as numbers.
    """
    import numpy as np

    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return math.inf, math.inf
    if not found.size:
        return 0.0, 0.0
    if found.dtype.kind != "f":
        different = found != wanted
        if not different.any():
            return 0.0, 0.0
        gap = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        return max(float(gap.max()), 1.0), math.inf
    return _float_errors(found.astype(np.float64).ravel(), wanted.astype(np.float64).ravel())


def _float_errors(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> tuple[float, float]:
    import numpy as np

    # infinities and NaN of the model itself are answers like others
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    if same.all():
        return 0.0, 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.where(same, 0.0, np.abs(found - wanted))
        finite = np.where(np.isfinite(wanted), wanted, 0.0)
        norm, size = float(np.linalg.norm(gap)), float(np.linalg.norm(finite))
    largest = float(gap.max())
    if not math.isfinite(largest) or not math.isfinite(norm):
        return math.inf, math.inf
    return largest, norm / size if size else math.inf
