# SPDX-License-Identifier: Apache-2.0
"""Makes the stand-ins for vendors' libraries importable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "standins"))


@pytest.fixture(scope="session", autouse=True)
def _stand_ins() -> Iterator[None]:
    """What was compiled goes with the session."""
    yield
    if "standin" in sys.modules:
        sys.modules["standin"].remove_all()
