# SPDX-License-Identifier: Apache-2.0
"""Choosing the graph of fixed shape for a call."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.binding.buckets import pick_bucket
from dpfedge.errors import BindError, FormatError, UsageError
from dpfedge.package.manifest import Graph


def graphs(*sizes: dict[str, int]) -> dict[str, Graph]:
    """A dynamic graph `encode`, and its buckets."""
    found = {"encode": Graph("s", (), (), (), {})}
    for index, size in enumerate(sizes):
        found[f"b{index}"] = Graph("s", (), (), (), {"bucket": {"graph": "encode", "sizes": size}})
    return found


def test_pick_bucket__smallest_that_fits() -> None:
    """The order in the package does not matter, an exact fit does."""
    have = graphs({"frames": 256}, {"frames": 64}, {"frames": 128})

    assert [pick_bucket("m", have, "encode", {"frames": n}) for n in (1, 64, 65, 128, 129)] == [
        "b1", "b1", "b2", "b2", "b0",
    ]  # fmt: skip


def test_pick_bucket__several_dimensions() -> None:
    """Every dimension must fit, and the least volume wins."""
    have = graphs({"a": 8, "b": 100}, {"a": 16, "b": 10}, {"a": 64, "b": 64})

    assert pick_bucket("m", have, "encode", {"a": 8, "b": 9}) == "b1"
    assert pick_bucket("m", have, "encode", {"a": 9, "b": 11}) == "b2"


def test_pick_bucket__none_fits() -> None:
    """The largest is named."""
    have = graphs({"frames": 64}, {"frames": 256})

    with pytest.raises(
        UsageError, match="m: encode: no bucket is large enough; found frames 300; allowed at most frames 256"
    ):
        pick_bucket("m", have, "encode", {"frames": 300})


def test_pick_bucket__other_questions() -> None:
    """A graph without buckets, and dimensions it does not have, are refused."""
    with pytest.raises(BindError, match="the graph has no buckets; found vad; allowed encode; load it by its name"):
        pick_bucket("m", graphs({"frames": 64}), "vad", {"frames": 1})
    with pytest.raises(UsageError, match="other dimensions; found n; allowed frames"):
        pick_bucket("m", graphs({"frames": 64}), "encode", {"n": 1})


@pytest.mark.parametrize(
    "bucket", [1, {"graph": "encode"}, {"sizes": {"n": 1}}, {"graph": "encode", "sizes": {"n": "1"}}]
)
def test_pick_bucket__damaged(bucket: Any) -> None:
    """Options are free-form in a package: what is no bucket is refused by name."""
    with pytest.raises(FormatError, match="m: graph encode: not a bucket"):
        pick_bucket("m", {"encode": Graph("s", (), (), (), {"bucket": bucket})}, "encode", {"n": 1})
