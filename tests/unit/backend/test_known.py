# SPDX-License-Identifier: Apache-2.0
"""One probe for everybody who asks about the same machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dpfedge.backend.accelerators import accelerators
from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.known import known_machine, machine_at
from dpfedge.hardware import probe as probing
from dpfedge.hardware.probe import probe

Record = Callable[[str], Path]


def test_known__is_not_probed_again(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside the context the told machine answers, for its own root only."""
    root = record("orin")
    told = replace(probe(root), kernel="9.9.9")

    with known_machine(root, told):
        assert machine_at(root) is told
        assert cpu_facts(root).drivers == {"kernel": "9.9.9"}
        assert accelerators(root) is told.accelerators
        assert machine_at(record("x86")).arch == "x86_64"
    assert machine_at(root).kernel == "5.15.148-tegra"


def test_known__ends_with_an_error(record: Record) -> None:
    """Nothing of it is left behind."""
    root = record("orin")

    with pytest.raises(KeyError), known_machine(root, replace(probing.probe(root), kernel="9.9.9")):
        raise KeyError
    assert machine_at(root).kernel == "5.15.148-tegra"
