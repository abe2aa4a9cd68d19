# SPDX-License-Identifier: Apache-2.0
"""Parity: what two machines answered to one package's golden inputs in, how far apart they are out.

A `Side` is one machine's answers as a JSON document. It runs no model (`dpfedge.binding.golden` does) and hears
nothing: what was heard of recorded speech is handed in.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge import limits
from dpfedge.backend.api import Array
from dpfedge.binding.golden import GoldenAnswer, errors_between, within
from dpfedge.errors import FormatError, UsageError
from dpfedge.records import dataclass
from dpfedge.tensors import TensorSpec, dtype_name

if TYPE_CHECKING:
    from dpfedge.binding.bound import Bound

__all__ = ["Difference", "Heard", "Output", "Side", "compare", "forms", "read_side", "side_of", "words", "words_apart"]

VERSION = 1
"""Of the document."""
_FORM = re.compile(r"int8|int4|8[- ]bit|8 bits|saturat")
_TOKENS = re.compile(r"(^|_)(token|tokens|ids)$")
_TEXT, _ERROR = (str,), (float, int, type(None))
_PACKAGE = dict.fromkeys(("name", "version", "sha256"), _TEXT)
_MACHINE = {"features": (list,), **dict.fromkeys(("arch", "cpu", "level", "onnxruntime"), _TEXT)}
_ERRORS = dict.fromkeys(("max_abs", "rel_l2", "max_abs_allowed", "rel_l2_allowed"), _ERROR)
_OUTPUT = {"case": (int,), **dict.fromkeys(("model", "graph", "port"), _TEXT), **_ERRORS}
_HEARD = dict.fromkeys(("sha256", "said", "heard"), _TEXT)


@dataclass(frozen=True, slots=True)
class Output:
    """One golden output on one machine: its values, and its errors against the recorded ones with what is allowed."""

    model: str
    graph: str
    case: int
    port: str
    values: Array
    max_abs: float | None
    """None: infinite, as the other error."""
    rel_l2: float | None
    max_abs_allowed: float | None
    rel_l2_allowed: float | None

    @property
    def name(self) -> str:
        """`MODEL.GRAPH PORT`, with the number of the record behind the first."""
        return f"{self.model}.{self.graph}{f'#{self.case}' if self.case else ''} {self.port}"


@dataclass(frozen=True, slots=True)
class Heard:
    """One recording: its digest, the words said in it and those that were heard."""

    sha256: str
    said: str
    heard: str

    @property
    def errors(self) -> float:
        """Word error rate: words to insert, delete or replace, by words said."""
        said = words(self.said)
        return words_apart(said, words(self.heard)) / len(said) if said else float(bool(words(self.heard)))


@dataclass(frozen=True, slots=True)
class Side:
    """What one machine answered. `decisions` are those of its target, as `dpfedge inspect --targets` shows them."""

    package: Mapping[str, str]
    machine: Mapping[str, Any]
    target: str
    decisions: tuple[tuple[str, str], ...]
    outputs: tuple[Output, ...]
    speech: tuple[Heard, ...] = ()

    def text(self) -> str:
        """The JSON document; the same answers give the same bytes."""
        outputs = [
            {key: value for key, value in _fields(output).items() if key != "values"}
            | {"values": _packed(output.values)}
            for output in self.outputs
        ]
        rest = {"package": dict(self.package), "machine": dict(self.machine), "target": self.target}
        lists = {"decisions": self.decisions, "outputs": outputs, "speech": [asdict(one) for one in self.speech]}
        return json.dumps({"parity": VERSION, **rest, **lists}, indent=1) + "\n"


@dataclass(frozen=True, slots=True)
class Difference:
    """One output on both machines. Each may be off the recorded values by what is allowed it, so both by the sum."""

    name: str
    max_abs: float
    rel_l2: float
    max_abs_allowed: float | None
    rel_l2_allowed: float | None
    tokens: int = 0
    """Tokens that a greedy decoder takes of the output; 0 where it is none."""
    same: int = 0
    """Those that are the same on both machines."""
    margin: float = 0.0
    """Of those that differ, by how much the first machine's logits preferred its own at most."""

    @property
    def passed(self) -> bool:
        """Whether the machines are as near each other as the package allows; tokens follow from that."""
        return within((self.max_abs, self.rel_l2), (self.max_abs_allowed, self.rel_l2_allowed))


def _fields(output: Output) -> dict[str, Any]:
    return {name: getattr(output, name) for name in Output.__slots__}


def side_of(bound: Bound, answers: Iterable[GoldenAnswer], machine: Mapping[str, Any], speech: Sequence[Heard]) -> Side:
    """The document of this machine: a bound package, its golden answers and what was heard."""
    manifest = bound.package.manifest
    package = {"name": manifest.name, "version": manifest.version, "sha256": bound.package.manifest_sha256.hex()}
    outputs = [
        Output(
            one.result.model, one.result.graph, one.result.case, one.result.port, one.values,
            _finite(one.result.max_abs), _finite(one.result.rel_l2),
            one.result.max_abs_allowed, one.result.rel_l2_allowed,
        )
        for one in answers
    ]  # fmt: skip
    decisions = tuple((choice, rule) for target in bound.targets for choice, rule in target.decisions)
    targets = ", ".join(target.id for target in bound.targets)
    return Side(package, machine, targets, decisions, tuple(outputs), tuple(speech))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _packed(values: Array) -> dict[str, Any]:
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(zlib.compress(little.tobytes(), 6)).decode()
    return {"dtype": dtype_name(values.dtype), "dims": list(values.shape), "zlib": data}


def read_side(path: Path) -> Side:
    """The document in a file; UsageError when it is none."""
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["parity"] != VERSION:
            raise UsageError("another version of parity documents", where=str(path), found=data["parity"],
                             allowed=VERSION)  # fmt: skip
        return Side(
            _checked(data["package"], _PACKAGE),
            _checked(data["machine"], _MACHINE),
            str(data["target"]),
            tuple((str(choice), str(rule)) for choice, rule in data["decisions"]),
            tuple(_output(row) for row in data["outputs"]),
            tuple(Heard(**_checked(row, _HEARD)) for row in data["speech"]),
        )
    except OSError as error:
        raise UsageError("cannot be read", where=str(path), found=error.strerror) from error
    except (
        ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error, binascii.Error,
        FormatError,
    ) as error:  # fmt: skip
        raise UsageError(
            "not what `dpfedge verify PACKAGE --answers FILE` writes", where=str(path),
            found=f"{type(error).__name__}: {error}",
        ) from error  # fmt: skip


def _checked(row: Any, kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The row; KeyError or TypeError where something of it is missing or of another kind."""
    for name, allowed in kinds.items():
        value = row[name]
        if type(value) not in allowed or (type(value) is list and not all(type(one) is str for one in value)):
            raise TypeError(f"{name} is {value!r:.40}")
    return dict(row)


def _output(row: Any) -> Output:
    checked = _checked(row, _OUTPUT)
    errors = {name: None if checked[name] is None else float(checked[name]) for name in _ERRORS}
    return Output(**{**checked, **errors, "values": _unpacked(row["values"])})


def _unpacked(row: Mapping[str, Any]) -> Array:
    import numpy as np

    packed = zlib.decompressobj()
    data = packed.decompress(base64.b64decode(row["zlib"], validate=True), limits.GOLDEN_TENSOR_MAX_BYTES)
    if not packed.eof:
        raise ValueError("values are cut, or larger than a golden tensor may be")
    dtype = TensorSpec("", row["dtype"]).numpy.newbyteorder("<")
    return np.frombuffer(data, dtype).reshape(row["dims"]).astype(dtype.newbyteorder("="), copy=False)


def compare(first: Side, second: Side) -> tuple[Difference, ...]:
    """Every output both machines have; UsageError when the packages, their records or the recordings differ.

    A machine may have heard nothing.
    """
    if first.package != second.package:
        raise UsageError(
            "answers to different packages", where="--parity",
            found=" and ".join(f"{one.package['name']} {one.package['version']} ({one.package['sha256'][:16]})"
                               for one in (first, second)),
            remedy="run the same file on both machines",
        )  # fmt: skip
    others = {output.name: output for output in second.outputs}
    both_heard = bool(first.speech and second.speech)
    for what, here, there in (
        ("golden outputs", {output.name for output in first.outputs}, set(others)),
        ("recordings", {one.sha256 for one in first.speech}, {one.sha256 for one in second.speech}),
    ):
        if here != there and (both_heard or what != "recordings"):
            raise UsageError(
                f"answers to different {what}", where="--parity", found=", ".join(sorted(here ^ there)[:4]),
                remedy="give both machines the same records and recordings",
            )  # fmt: skip
    return tuple(_difference(output, others[output.name]) for output in first.outputs)


def _difference(one: Output, other: Output) -> Difference:
    largest, relative = errors_between(other.values, one.values)
    allowed = (_sum(one.max_abs_allowed, other.max_abs_allowed), _sum(one.rel_l2_allowed, other.rel_l2_allowed))
    tokens, same, margin = _tokens(one, other)
    return Difference(one.name, largest, relative, *allowed, tokens, same, margin)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _tokens(one: Output, other: Output) -> tuple[int, int, float]:
    """(tokens chosen, those that both chose, the first machine's largest preference where they differ).

    A token is the largest element of a row of logits, or an element of an output of whole numbers called tokens.
    """
    import numpy as np

    if one.values.shape != other.values.shape or not one.values.size or not one.values.ndim:
        return 0, 0, 0.0
    if one.values.dtype.kind in "iu" and _TOKENS.search(one.port):
        return one.values.size, int((one.values == other.values).sum()), 0.0
    if not one.port.endswith("logits"):
        return 0, 0, 0.0
    first = one.values.reshape(-1, one.values.shape[-1]).astype(np.float64)
    mine, theirs, rows = first.argmax(1), other.values.reshape(first.shape).argmax(1), np.arange(len(first))
    gaps = first[rows, mine] - first[rows, theirs]
    return len(rows), int((mine == theirs).sum()), float(gaps.max())


def words(text: str) -> list[str]:
    """The words of a text as they are compared: small letters, digits and apostrophes."""
    return re.sub(r"[^\w' ]|_", " ", text.casefold()).split()


def words_apart(said: Sequence[str], heard: Sequence[str]) -> int:
    """Words to insert, delete or replace so that `said` becomes `heard` (Levenshtein's distance)."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


def forms(side: Side) -> Iterator[str]:
    """The target's decisions on 8- and 4-bit arithmetic, each with its rule: why its sums are exact on that machine."""
    return (f"{choice}: {rule}" for choice, rule in side.decisions if _FORM.search(f"{choice} {rule}"))
