# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a caller: each is refused by the reference, and told from what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dpfedge_reference import ReferenceBackend

from dpfedge.testing.loading import load
from dpfedge.testing.measuring import poisoned
from dpfedge.testing.mistakes import mistakes, refusal
from dpfedge.testing.models import WIDTH, affine, rows

BACKEND = ReferenceBackend()
DEVICE = BACKEND.devices(Path("/"))[0]


def test_mistakes__are_refused_by_name() -> None:
    """All of them, by the graph's name, and the memory of outputs stays as it was."""
    memory = [poisoned((count, WIDTH), np.dtype(np.float32)) for count in (1, 4, 2)]
    found = {what: refusal(act) for what, act in mistakes(load(BACKEND, DEVICE, affine(2)), *memory).items()}

    assert {what for what, said in found.items() if "graph affine" not in said} == set()
    assert {"another rank", "an output with holes", "an output that is read-only"} <= found.keys()
    assert all(set(array.tobytes()) == {0xA5} for array in memory)


def test_refusal__of_what_is_no_mistake() -> None:
    """Nothing was said; an error of another kind is not taken for a refusal."""
    executable = load(BACKEND, DEVICE, affine(2))

    assert refusal(lambda: executable.run({"x": rows(2)})) == ""
    with pytest.raises(ZeroDivisionError):
        refusal(lambda: 1 // 0)
