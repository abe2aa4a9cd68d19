# SPDX-License-Identifier: Apache-2.0
"""The reference's list is where `dpfedge doctor --verify` looks for it."""

from __future__ import annotations

from dpfedge_reference import ReferenceBackend
from dpfedge_reference.verify import UNSUPPORTED

from dpfedge.doctor.verify import lists


def test_lists__are_found_by_the_doctor() -> None:
    """They are the suite's own."""
    assert lists(ReferenceBackend()) == (("*",), UNSUPPORTED, {})
