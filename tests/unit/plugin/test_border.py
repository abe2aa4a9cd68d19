# SPDX-License-Identifier: Apache-2.0
"""What foreign code may do to the rest."""

from __future__ import annotations

import pytest

from dpfedge.errors import BackendError, Unavailable, UsageError
from dpfedge.plugin.border import Border, Contract


def test_border__tells_the_reason_and_goes_on() -> None:
    """Any error of foreign code becomes text; one of dpfedge's own needs no kind before it."""
    told: list[str] = []

    for error in (OSError("libgone.so"), Unavailable("no driver", where="backend cuda"), KeyError("x"), SystemExit(3)):
        with Border(told.append):
            raise error
    assert told == ["OSError: libgone.so", "backend cuda: no driver", "KeyError: 'x'", "SystemExit: 3"]


def test_border__lets_the_callers_errors_and_ends_through() -> None:
    """A UsageError is about the caller; the end of the process is nobody's failure."""
    told: list[str] = []

    with pytest.raises(UsageError), Border(told.append):
        raise UsageError("two claims")
    with pytest.raises(KeyboardInterrupt), Border(told.append):
        raise KeyboardInterrupt
    with Border(told.append):
        pass
    assert told == []


def test_contract__names_what_broke_it() -> None:
    """Where it was raised too; dpfedge's own errors and the end of the process are no breach."""
    for error in (RuntimeError("native"), SystemExit(3)):
        with pytest.raises(BackendError) as caught, Contract("backend mine: graph g"):
            raise error
        said = f"backend mine: graph g: it broke its contract; found {type(error).__name__}: {error} ({__file__}, line "
        assert str(caught.value).startswith(said)
        assert caught.value.__cause__ is error
    with pytest.raises(Unavailable, match=r"^backend mine: gone$"), Contract("backend mine"):
        raise Unavailable("gone", where="backend mine")
    with pytest.raises(KeyboardInterrupt), Contract("backend mine"):
        raise KeyboardInterrupt
