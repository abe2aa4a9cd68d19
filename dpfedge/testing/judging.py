# SPDX-License-Identifier: Apache-2.0
"""What a test of the suite is called, whether a list names it, and how it is judged then.

It knows no backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase

import pytest

from dpfedge.backend.api import Array
from dpfedge.errors import Unsupported
from dpfedge.testing.cases import Case

__all__ = ["golden", "judge", "match", "name_of", "named"]


def name_of(request: pytest.FixtureRequest) -> str:
    """`op/Conv-1d/f32` for one operator's test, else what stands before the test's double underscore."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "case" in callspec.params:
        return f"op/{callspec.params['case'].name}"
    return named(str(request.node.originalname))


def named(function: str) -> str:
    """What lists call a test of the suite: `cancel` for `test_cancel__ends_a_run`."""
    return function.removeprefix("test_").partition("__")[0]


def match(patterns: Mapping[str, str], name: str) -> str | None:
    """The reason of the first pattern that fits; None when none does."""
    return next((reason for pattern, reason in patterns.items() if fnmatchcase(name, pattern)), None)


def golden(case: Case) -> list[Array]:
    """The reference's answers to a case; the test is skipped where the reference is not installed."""
    try:
        from dpfedge_reference.evaluator import evaluate
    except ImportError as error:
        pytest.skip(f"what is right comes from dpfedge-reference: pip install dpfedge-reference ({error})")
    return list(evaluate(case.model(), case.feeds))


@contextmanager
def judge(reason: str | None, name: str = "") -> Iterator[None]:
    """Nothing without a reason; with one, the body must raise Unsupported, and say why.

    What is told otherwise than the lists say fails with what to write into them for the test `name`.
    """
    said = None
    try:
        yield
    except Unsupported as error:
        if reason is None:
            error.add_note(f"if that is for good, write {name!r}: 'the reason' into `unsupported` (or narrow `ops`)")
            raise
        said = str(error)
    if reason is not None and not said:
        remedy = "take it off `unsupported`, or put it into `ops`"
        pytest.fail(f"{name} DID NOT RAISE Unsupported, as the lists say it does ({reason}): {remedy}")
