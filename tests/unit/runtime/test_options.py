# SPDX-License-Identifier: Apache-2.0
"""What a request may say, and where the public names come from."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

import dpfedge
from dpfedge import runtime
from dpfedge.errors import UsageError
from dpfedge.runtime.options import AudioFormat, Limits, Sampling


def test_defaults__leave_everything_to_the_package() -> None:
    """None, or what changes nothing."""
    asked = dataclasses.asdict(Sampling())

    assert {name for name, value in asked.items() if value is not None} == {
        "stop", "presence_penalty", "frequency_penalty",
    }  # fmt: skip
    assert not any(value for value in asked.values())
    assert AudioFormat() == AudioFormat("container", None, 1)


@pytest.mark.parametrize("record", [AudioFormat(), Sampling()])
def test_options__cannot_change_after_they_were_given(record: object) -> None:
    """They are shared as default arguments."""
    field = dataclasses.fields(record)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, field, "x")


def test_names__are_the_same_from_both_doors() -> None:
    """`from dpfedge import Runtime` is `from dpfedge.runtime import Runtime`; others are refused by name."""
    for name in set(dpfedge.__all__) - {"__version__"}:
        assert getattr(dpfedge, name) is getattr(runtime, name)
    for module in (dpfedge, runtime):
        with pytest.raises(AttributeError, match="Runtme"):
            _ = module.Runtme


def test_import__opens_and_imports_nothing_heavy() -> None:
    """Importing dpfedge costs a program nothing until it opens a runtime."""
    code = (
        "import sys, dpfedge, dpfedge.runtime;"
        "sys.exit(str(sorted({'numpy', 'onnxruntime', 'asyncio', 'cbor2', 'starlette'} & set(sys.modules)) or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""


@pytest.mark.parametrize("wrong", [{"urgency": -1}, {"urgency": 8}, {"deadline_s": 0}, {"deadline_s": 1e9}])
def test_limits__out_of_range(wrong: dict[str, float]) -> None:
    """Refused where they are given."""
    with pytest.raises(UsageError, match="out of range"):
        Limits(**wrong)  # type: ignore[arg-type]
