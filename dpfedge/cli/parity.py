# SPDX-License-Identifier: Apache-2.0
"""Parity as `dpfedge verify` makes and shows it: this machine's answers into a file, two such files into a report.

The comparison is `dpfedge.binding.parity`'s; recordings are heard by a runtime of the package.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.bench.wav import read_mono
from dpfedge.binding.golden import GoldenResult, golden_answers
from dpfedge.binding.parity import Difference, Heard, Side, compare, forms, read_side, side_of, words, words_apart
from dpfedge.cli.columns import aligned
from dpfedge.cli.golden_table import bound_here
from dpfedge.cli.writing import writing
from dpfedge.errors import BackendError, UsageError
from dpfedge.hardware.probe import probe

if TYPE_CHECKING:
    from dpfedge.package import Package

__all__ = ["Recording", "answer", "hear", "show_parity"]

Recording = tuple[Path, str]
"""A WAV file and the words said in it."""
_RATE_SLACK = 0.05
"""How far apart the word error rates of two machines may lie; or one word, on short recordings."""


def answer(
    package: Package, board: str, vouch: Callable[[Package], object], file: Path, speech: Sequence[Heard]
) -> list[GoldenResult]:
    """Run the golden records here and write what was computed and heard to `file`; the results.

    BindError, BoardError and BackendError as found; WriteError when `file` cannot be written.
    """
    bound = bound_here(package, board, vouch)
    answers = list(golden_answers(bound))
    cpu = probe().cpu
    machine = {
        "arch": cpu.arch, "cpu": cpu.model, "level": cpu.level, "features": sorted(cpu.features),
        "backend": ", ".join(sorted(bound.backends)),
        "device": ", ".join(sorted({d.name for d in bound.devices.values()})),
        "dpfedge": version("dpfedge"), "onnxruntime": version("onnxruntime"), "numpy": version("numpy"),
    }  # fmt: skip
    with writing(file, "the answers"):
        file.write_text(side_of(bound, answers, machine, speech).text(), "utf-8")
    return [one.result for one in answers]


def hear(package: Path, board: str, recordings: Sequence[Recording], **trust: Any) -> list[Heard]:
    """What the pipeline in `package` hears in each recording; `trust` as for `Runtime.open`."""
    from dpfedge.pipeline.events import Transcript
    from dpfedge.runtime import AudioFormat, Runtime

    found = []
    with Runtime.open(package, board=board, **trust) as runtime:
        for path, said in recordings:
            samples, rate = read_mono(path, "the recording", UsageError)
            events = runtime.transcribe(samples, AudioFormat("pcm_s16le", rate))
            heard = " ".join(event.text for event in events if isinstance(event, Transcript))
            found.append(Heard(hashlib.sha256(samples).hexdigest(), said, heard))
    return found


def show_parity(first: Path, second: Path, as_json: bool) -> None:
    """Print the report; BackendError when the machines are further apart than the package allows."""
    sides = read_side(first), read_side(second)
    rows, heard = compare(*sides), _pairs(*sides)
    far = [row.name for row in rows if not row.passed] + [
        f"speech {one.sha256[:12]}" for one, *_, ok in heard if not ok
    ]
    if as_json:
        print(json.dumps(_report(sides, rows, heard, far), indent=2))
    else:
        print("\n".join([*_heads(sides), *_table(rows), *_speech(heard)]))
    if far:
        names = ", ".join(far[:4]) + (f" and {len(far) - 4} more" if len(far) > 4 else "")
        raise BackendError(
            f"{len(far)} of {len(rows) + len(heard)} answers lie further apart than allowed: {names}",
            where=f"{first} and {second}", remedy="see `dpfedge verify PACKAGE --run` on each machine",
        )  # fmt: skip


Pair = tuple[Heard, Heard, int, bool]
"""What each machine heard of a recording, the words in which they differ, and whether their error rates agree."""


def _pairs(first: Side, second: Side) -> list[Pair]:
    others = {one.sha256: one for one in second.speech}
    return [_pair(one, others[one.sha256]) for one in first.speech if others]


def _pair(one: Heard, other: Heard) -> Pair:
    slack = max(_RATE_SLACK, 1 / max(1, len(words(one.said))))
    apart = words_apart(words(one.heard), words(other.heard))
    return one, other, apart, abs(one.errors - other.errors) <= slack + 1e-9


def _report(sides: Sequence[Side], rows: Sequence[Difference], heard: Sequence[Pair], far: list[str]) -> dict[str, Any]:
    return {
        "package": dict(sides[0].package),
        "machines": [dict(side.machine) | {"target": side.target, "forms": list(forms(side))} for side in sides],
        "outputs": [
            {key: None if value == math.inf else value for key, value in asdict(row).items()}
            | {"passed": row.passed}
            for row in rows
        ],
        "tokens": {"same": sum(row.same for row in rows), "of": sum(row.tokens for row in rows)},
        "speech": [
            {"sha256": one.sha256, "said": one.said, "heard": [one.heard, other.heard],
             "word_error_rate": [one.errors, other.errors], "words_apart": apart, "passed": ok}
            for one, other, apart, ok in heard
        ],
        "passed": not far,
    }  # fmt: skip


def _heads(sides: Sequence[Side]) -> Iterator[str]:
    package = sides[0].package
    yield f"{package['name']} {package['version']}, manifest {package['sha256']}"
    for letter, side in zip("AB", sides, strict=True):
        machine = side.machine
        yield f"{letter}  {machine['cpu'] or machine['arch']}, {machine['level']}: target {side.target}"
        yield f"   features {' '.join(machine['features'])}; onnxruntime {machine['onnxruntime']}"
        yield from (f"   {form}" for form in forms(side))


def _table(rows: Sequence[Difference]) -> Iterator[str]:
    cells = [("graph and output", "max_abs", "allowed", "rel_l2", "allowed", "same tokens", "")]
    for row in rows:
        largest, relative = _allowed(row)
        same = f"{row.same} of {row.tokens}" if row.tokens else ""
        errors = f"{row.max_abs:.3g}", largest, f"{row.rel_l2:.3g}", relative
        cells.append((row.name, *errors, same, "pass" if row.passed else "FAIL"))
    yield from aligned(cells, (0, 6))
    if tokens := sum(row.tokens for row in rows):
        margin = max(row.margin for row in rows)
        yield (
            f"tokens: {sum(row.same for row in rows)} of {tokens} the same"
            f"{f'; A preferred its own by {margin:.3g} at most' if margin else ''}"
        )


def _allowed(row: Difference) -> tuple[str, str]:
    missing = "equal" if row.max_abs_allowed is None and row.rel_l2_allowed is None else "any"
    largest, relative = (
        missing if allowed is None else f"{allowed:.3g}" for allowed in (row.max_abs_allowed, row.rel_l2_allowed)
    )
    return largest, relative


def _speech(pairs: Sequence[Pair]) -> Iterator[str]:
    for one, other, apart, ok in pairs:
        yield (
            f"speech {one.sha256[:12]}: word error rate A {one.errors:.1%}, B {other.errors:.1%}, "
            f"{apart} words apart: {'pass' if ok else 'FAIL'}"
        )
        yield f"   A  {one.heard}"
        yield f"   B  {other.heard}"
