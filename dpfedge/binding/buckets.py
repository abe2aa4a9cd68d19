# SPDX-License-Identifier: Apache-2.0
"""The fixed-shape graphs of a model and the sizes a call needs in, the smallest graph that takes them out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpfedge.errors import BindError, FormatError, UsageError
from dpfedge.package.manifest import Graph

__all__ = ["pick_bucket"]


def pick_bucket(where: str, graphs: Mapping[str, Graph], graph: str, sizes: Mapping[str, int]) -> str:
    """The name of the smallest bucket of `graph` that takes `sizes` (dimension → elements wanted).

    UsageError when none is large enough, naming the largest, or when the dimensions are others; BindError when the
    graph has no buckets.
    """
    all_buckets = {name: _bucket(item.options, f"{where}: graph {name}") for name, item in graphs.items()}
    buckets = {name: bucket[1] for name, bucket in all_buckets.items() if bucket is not None and bucket[0] == graph}
    if not buckets:
        known = sorted({bucket[0] for bucket in all_buckets.values() if bucket is not None})
        raise BindError("the graph has no buckets", where=where, found=graph, allowed=", ".join(known) or "none",
                        remedy="load it by its name, or give its recipe buckets")  # fmt: skip
    asked = {name: have for name, have in buckets.items() if have.keys() == sizes.keys()}
    if not asked:
        dims = ", ".join(next(iter(buckets.values())))
        raise UsageError("other dimensions", where=f"{where}: {graph}", found=", ".join(sizes), allowed=dims)
    fitting = {name: have for name, have in asked.items() if all(have[dim] >= sizes[dim] for dim in have)}
    if not fitting:
        largest = max(asked.values(), key=_volume)
        raise UsageError("no bucket is large enough", where=f"{where}: {graph}", found=_text(sizes),
                         allowed=f"at most {_text(largest)}", remedy="split the input")  # fmt: skip
    return min(fitting, key=lambda name: (_volume(fitting[name]), name))


def _bucket(options: Mapping[str, Any], where: str) -> tuple[str, dict[str, int]] | None:
    """(graph, sizes) of a bucket's options, None for any other graph's."""
    if (bucket := options.get("bucket")) is None:
        return None
    graph, sizes = (bucket.get("graph"), bucket.get("sizes")) if isinstance(bucket, dict) else (None, None)
    if not isinstance(graph, str) or not isinstance(sizes, dict) or not all(type(n) is int for n in sizes.values()):
        raise FormatError(
            "not a bucket", where=where, found=f"{bucket!r}"[:80], allowed="graph, and sizes by dimension"
        )
    return graph, sizes


def _volume(sizes: Mapping[str, int]) -> int:
    return math.prod(sizes.values())


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{dim} {size}" for dim, size in sizes.items())
