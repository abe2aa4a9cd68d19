# SPDX-License-Identifier: Apache-2.0
"""Instances: files, names, weights, capacities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpfedge import limits
from dpfedge.errors import UsageError
from dpfedge.routing.instances import Instance, parse_instances, read_instances, weigh


def test_read__a_list(tmp_path: Path) -> None:
    """Names and weights; 1 without one."""
    file = tmp_path / "instances.json"
    file.write_text(
        json.dumps([{"name": "a", "weight": 3}, {"name": "b"}, {"name": "c", "weight": 2, "healthy": False}])
    )
    assert read_instances(file) == [Instance("a", 3), Instance("b", 1), Instance("c", 2, healthy=False)]
    assert [one.effective for one in read_instances(file)] == [3, 1, 0]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"name": "a"}, "instances are a list; found an object"),
        (["a"], r"here\[0\]: an instance is an object; found text"),
        ([{"weight": 1}], "an instance has a name; found nothing"),
        ([{"name": 5}], "an instance has a name; found a number"),
        ([{"name": "a", "wieght": 1}], "unknown key; found wieght; allowed healthy, name, weight"),
        ([{"name": "a", "weight": 65536}], r"here\[0\]: instance a: the weight is out of range; found 65536"),
        ([{"name": "a", "weight": -1}], "out of range"),
        ([{"name": "a", "weight": 1.5}], "out of range; found 1.5"),
        ([{"name": "a", "weight": True}], "out of range; found True"),
        ([{"name": "a", "healthy": "no"}], "healthy is true or false; found text"),
        ([{"name": ""}], "wrong length; found 0 bytes"),
        ([{"name": "é" * 129}], "wrong length; found 258 bytes; allowed 1..256 bytes"),
        ([{"name": "\ud800"}], "cannot be written as UTF-8"),
        ([{"name": "a"}, {"name": "b"}, {"name": "a"}], r"here\[2\]: two instances have one name; found 'a', as "),
        ([{"name": "a"}] * 65536, "too many instances; found 65536; allowed 65535"),
    ],
)  # fmt: skip
def test_parse__says_what_is_wrong(rows: Any, text: str) -> None:
    """The place, what was found and what is allowed."""
    with pytest.raises(UsageError, match=text):
        parse_instances(rows, "here")


def test_read__what_is_no_file_of_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, no JSON, brackets without end, and more than anybody has."""
    file = tmp_path / "instances.json"
    with pytest.raises(UsageError, match="No such file"):
        read_instances(file)
    file.write_text("[{")
    with pytest.raises(UsageError, match="no JSON"):
        read_instances(file)
    file.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="no JSON"):
        read_instances(file)
    monkeypatch.setattr(limits, "ROUTE_FILE_MAX_BYTES", 100)
    with pytest.raises(UsageError, match="too long"):
        read_instances(file)


def test_address__of_names_that_are_one() -> None:
    """What the kernel can route to; other names have none."""
    assert Instance("10.0.0.1:8000").address == (bytes([10, 0, 0, 1]), 8000)
    for name in ("gpu-0", "10.0.0.1", "10.0.0.256:1", "10.0.0.1:x", "10.0.0.1:70000"):
        assert Instance(name).address == (bytes(4), 0)


def test_weigh__in_proportion() -> None:
    """1000 for the largest, at least 1, none for none."""
    assert weigh({"a": 80.0, "b": 40.0, "c": 0.001, "d": 0}) == {"a": 1000, "b": 500, "c": 1, "d": 0}
    assert weigh({}) == {}
    assert weigh({"a": 0}) == {"a": 0}
    for capacity in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="capacity"):
            weigh({"a": capacity})
