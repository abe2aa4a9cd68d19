# SPDX-License-Identifier: Apache-2.0
"""Where windows of convolutions and pools stand: pads, output sizes, attributes of one and two dimensions alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpfedge_opencl.ops.api import Node

__all__ = ["Window", "window"]


@dataclass(frozen=True, slots=True)
class Window:
    """Two dimensions each (height is 1 where there is one), for an input of a known size."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]
    sizes: tuple[int, int]
    """Of the input."""
    result: tuple[int, int]
    """Of the output."""


def _two(values: Sequence[int], fill: int) -> tuple[int, int]:
    return (fill, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))


def window(node: Node, sizes: Sequence[int], kernel: Sequence[int]) -> Window:
    """The node's windows over an input of these spatial sizes; `kernel` where the attribute may be missing."""
    rank, attrs = len(sizes), node.attrs
    pads = [int(one) for one in attrs.get("pads") or [0] * (2 * rank)]
    k = _two(attrs.get("kernel_shape") or kernel, 1)
    s, d = _two(attrs.get("strides") or [1] * rank, 1), _two(attrs.get("dilations") or [1] * rank, 1)
    n, before, after = _two(sizes, 1), _two(pads[:rank], 0), _two(pads[rank:], 0)
    spans = tuple((k[i] - 1) * d[i] + 1 for i in (0, 1))
    auto = str(attrs.get("auto_pad") or "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        whole = [max((-(-n[i] // s[i]) - 1) * s[i] + spans[i] - n[i], 0) for i in (0, 1)]
        less = [one // 2 if auto == "SAME_UPPER" else one - one // 2 for one in whole]
        before, after = (less[0], less[1]), (whole[0] - less[0], whole[1] - less[1])
    elif auto == "VALID":
        before = after = (0, 0)
    result = []
    for i in (0, 1):
        room = n[i] + before[i] + after[i] - spans[i]
        up = attrs.get("ceil_mode") and (room // s[i] + 1) * s[i] < n[i] + before[i]
        result.append((-(-room // s[i]) if up else room // s[i]) + 1)
    return Window(k, s, d, before, after, n, (result[0], result[1]))
