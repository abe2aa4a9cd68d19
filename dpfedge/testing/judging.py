# SPDX-License-Identifier: Apache-2.0
"""What a test of the suite is called, whether a list names it, and how it is judged then.

It knows no backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase

import pytest

from dpfedge.errors import Unsupported

__all__ = ["judge", "match", "name_of"]


def name_of(request: pytest.FixtureRequest) -> str:
    """`op/Conv-1d/f32` for one operator's test, else what stands before the test's double underscore."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "case" in callspec.params:
        return f"op/{callspec.params['case'].name}"
    return str(request.node.originalname).removeprefix("test_").partition("__")[0]


def match(patterns: Mapping[str, str], name: str) -> str | None:
    """The reason of the first pattern that fits; None when none does."""
    return next((reason for pattern, reason in patterns.items() if fnmatchcase(name, pattern)), None)


@contextmanager
def judge(reason: str | None) -> Iterator[None]:
    """Nothing without a reason; with one, the body must raise Unsupported, and say why."""
    if reason is None:
        yield
        return
    with pytest.raises(Unsupported) as caught:  # what works after all is taken off the list
        yield
    assert str(caught.value)
