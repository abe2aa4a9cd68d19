# SPDX-License-Identifier: Apache-2.0
"""A pipeline's graph as lines for people: stages with their ports, links with what they hold. It prints nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpfedge.hardware.source.root import label
from dpfedge.link import LinkSpec
from dpfedge.pipeline.graph import Graph, StageNode

__all__ = ["graph_lines", "graph_record"]


def graph_lines(graph: Graph) -> Iterator[str]:
    """Stages first to last, then links."""
    yield "stages (first to last):"
    for node in graph.stages:
        yield f"  {node.name}: {label(node.kind.name)}{f', model {label(node.model)}' if node.model else ''}"
        yield from _ports(node)
    yield "links (slots of bytes, when full):"
    width = max(len(_ends(graph, link)) for link in graph.links())
    for link in graph.links():
        yield f"  {_ends(graph, link):<{width}}  {link.slots:>4} x {link.slot_bytes:<9} {_full(graph, link)}"
    total = sum(link.slots * link.slot_bytes for link in graph.links())
    yield f"  {total / 2**20:.1f} MiB together"


def graph_record(graph: Graph) -> dict[str, Any]:
    """The same for programs."""
    return {
        "stages": [
            {
                "name": node.name, "kind": node.kind.name, "model": node.model or None,
                "inputs": {name: str(port) for name, port in node.ports.inputs.items()},
                "outputs": {name: str(port) for name, port in node.ports.outputs.items()},
            }
            for node in graph.stages
        ],
        "links": [
            {
                "name": link.name, "from": link.producer, "to": list(link.consumers), "slots": link.slots,
                "slot_bytes": link.slot_bytes, "full": _full(graph, link),
            }
            for link in graph.links()
        ],
    }  # fmt: skip


def _ports(node: StageNode) -> Iterator[str]:
    for side, ports in (("in ", node.ports.inputs), ("out", node.ports.outputs)):
        for name, port in ports.items():
            said = [str(port), *(f"{port.rate:g} Hz" for _ in range(port.rate is not None)), port.layout, port.unit]
            yield f"    {side} {name}: {', '.join(label(word) for word in said if word)}"


def _ends(graph: Graph, link: LinkSpec) -> str:
    """`camera.frames → detect.frames, view.frames`; without ports where the runtime itself is at one end."""
    outputs = next(
        (port for node in graph.stages for port, name in node.wiring.outputs.items() if name == link.name), ""
    )
    start = f"{link.producer}.{outputs}" if outputs else link.producer
    ends = []
    for consumer in link.consumers:
        port = next((node.wiring.inputs.get(link.name) for node in graph.stages if node.name == consumer), None)
        ends.append(f"{consumer}.{port}" if port else consumer)
    return f"{start} → {', '.join(ends)}"


def _full(graph: Graph, link: LinkSpec) -> str:
    if link.policy == "newest":
        return "newest"
    failing = any(
        name == link.name and port in node.wiring.failing
        for node in graph.stages for port, name in node.wiring.outputs.items()
    )  # fmt: skip
    return "fail" if failing else "block"
