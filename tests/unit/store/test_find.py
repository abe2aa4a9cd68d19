# SPDX-License-Identifier: Apache-2.0
"""Finding what is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import StoreError, UsageError
from dpfedge.store import Store
from dpfedge.store.find import active, by_id, unknown

Make = Callable[..., Path]


def test_active__and_by_id(store: Store, make: Make, judge: Any) -> None:
    """The same record; what is not there is said."""
    one = store.install(make("1"), judge).installed

    assert active(store.places, "voice") == by_id(store.places, one.id) == one
    with pytest.raises(UsageError, match="no such package is installed; found 'x'; allowed voice"):
        active(store.places, "x")
    with pytest.raises(StoreError, match="the record of an installed package cannot be read"):
        by_id(store.places, "0" * 64)
    assert "did you mean voice?" in str(unknown(store.places, "voce"))
