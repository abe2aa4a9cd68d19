# SPDX-License-Identifier: Apache-2.0
"""Which kernels a lowered graph has that its source had not: two graphs in, decisions for `inspect --targets` out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx

__all__ = ["kernels"]

_ATTENTION = frozenset(
    {"Attention", "DecoderMaskedMultiHeadAttention", "GroupQueryAttention", "MultiHeadAttention", "PackedAttention",
     "PackedMultiHeadAttention", "QAttention", "SparseAttention"}
)  # fmt: skip
_DOMAIN = "com.microsoft"


def kernels(source: onnx.ModelProto, lowered: onnx.ModelProto) -> list[tuple[str, str]]:
    """(choice, rule) of the attention kernels and of the patterns that became one kernel."""
    before, after = _counted(source.graph), _counted(lowered.graph)
    notes = []
    attention = {op: count for (_, op), count in after.items() if op in _ATTENTION}
    if attention:
        own = all(before[key] >= count for key, count in after.items() if key[1] in _ATTENTION)
        rule = "the imported graph has it as one operator" if own else "the optimiser put it together from its parts"
        notes.append((f"attention={_shown(attention)}", rule))
    fused = {
        op: count - before[(domain, op)]
        for (domain, op), count in after.items()
        if domain == _DOMAIN and op not in _ATTENTION and count > before[(domain, op)]
    }
    if fused:
        notes.append((f"fused={_shown(fused)}", "the optimiser found these patterns, each of which has one kernel"))
    return notes


def _shown(counts: dict[str, int]) -> str:
    return ", ".join(f"{count}×{op}" for op, count in sorted(counts.items()))


def _counted(graph: onnx.GraphProto) -> Counter[tuple[str, str]]:
    return Counter((node.domain, node.op_type) for node in _nodes(graph))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for branch in (attribute.g, *attribute.graphs):
                yield from _nodes(branch)
