# SPDX-License-Identifier: Apache-2.0
"""Names, lists and judgements of the suite."""

from __future__ import annotations

import pytest

from dpfedge.errors import BackendError, Unsupported
from dpfedge.testing.judging import judge, match, name_of


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


@pytest.mark.parametrize("case", ["plain"])
def test_name_of__this_test(request: pytest.FixtureRequest, case: str) -> None:
    """What stands before the underscores; `case` here is no operator's."""
    del case
    request.node.callspec.params.pop("case")

    assert name_of(request) == "name_of"
