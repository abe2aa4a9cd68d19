# SPDX-License-Identifier: Apache-2.0
"""Names, lists and judgements of the suite."""

from __future__ import annotations

import sys

import pytest

from dpfedge.errors import BackendError, Unsupported
from dpfedge.testing.cases import cases
from dpfedge.testing.judging import golden, judge, match, name_of, named


def test_match__by_pattern() -> None:
    """The first pattern that fits gives the reason."""
    patterns = {"op/Conv*/f16": "no halves", "cancel": "never"}

    assert match(patterns, "op/Conv-1d/f16") == "no halves"
    assert match(patterns, "op/Conv-1d/f32") is None
    assert match(patterns, "cancel") == "never"


def test_judge__wants_the_error_and_its_words() -> None:
    """With a reason Unsupported must come; another error, or none, fails; without one all passes through."""
    with judge("never"):
        raise Unsupported("no such operator")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"), judge("never"):
        pass
    with pytest.raises(BackendError), judge("never"):
        raise BackendError("broken")
    with judge(None):
        pass
    said = r"op/Add/f32 DID NOT RAISE .*\(never\).*take it off"
    with pytest.raises(pytest.fail.Exception, match=said), judge("never", "op/Add/f32"):
        pass


def test_judge__says_what_to_write_into_the_lists() -> None:
    """An operator that is not there, and stands in no list."""
    with pytest.raises(Unsupported) as caught, judge(None, "op/Add/f32"):
        raise Unsupported("no such operator")

    assert "write 'op/Add/f32'" in caught.value.__notes__[0]


def test_golden__is_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed the test is skipped, and says what to install."""
    case = next(one for one in cases() if one.name == "Add/f32")
    (found,) = golden(case)
    assert found.shape == (2, 3, 4)

    monkeypatch.setitem(sys.modules, "dpfedge_reference.evaluator", None)
    with pytest.raises(pytest.skip.Exception, match="pip install dpfedge-reference"):
        golden(case)


def test_named__is_the_word_before_the_underscores() -> None:
    """As lists have it."""
    assert named("test_load_unload__returns_memory") == "load_unload"


@pytest.mark.parametrize("case", ["plain"])
def test_name_of__this_test(request: pytest.FixtureRequest, case: str) -> None:
    """What stands before the underscores; `case` here is no operator's."""
    del case
    request.node.callspec.params.pop("case")

    assert name_of(request) == "name_of"
