# SPDX-License-Identifier: Apache-2.0
"""How stages are joined: the links a pipeline draws, or the voice chain's own, checked port by port.

It maps no memory; `graph.py` asks it for every link and for which port of a stage each one is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, Literal

from dpfedge.config import nearest
from dpfedge.errors import ConfigError
from dpfedge.link import LinkSpec
from dpfedge.pipeline.stage_record import Wiring
from dpfedge.records import dataclass
from dpfedge.stage.ports import Port, Ports, difference

__all__ = ["CHAIN", "SINK", "SOURCE", "Drawn", "Join", "chain", "draw", "loops"]

SOURCE, SINK = "source", "sink"
CHAIN = ("decoder", "encoder", "llm", "voice")
_CHAIN_PORTS = {("decoder", "encoder"): "speech", ("encoder", "llm"): "text", ("llm", "voice"): "clauses"}
Full = Literal["block", "fail", "newest"]


@dataclass(frozen=True, slots=True)
class Join:
    """One output joined with inputs. `full`: what a stage without a slot does: wait, fail its request, or overwrite.

    `delay`: it leads back; who receives does not wait for its end.
    """

    output: tuple[str, str]
    inputs: tuple[tuple[str, str], ...]
    full: Full
    slots: int
    nbytes: int
    delay: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """All links of a pipeline, and what they are to each stage and to the caller."""

    links: tuple[LinkSpec, ...]
    wiring: Mapping[str, Wiring]
    given: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Inputs that the caller feeds → their links."""
    taken: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Links that the caller reads → the outputs they carry."""


def chain(ports: Mapping[str, Ports]) -> tuple[Join, ...]:
    """The joins of the voice chain, as far as its stages are there."""
    pairs = [(a, b) for a, b in pairwise(CHAIN) if a in ports and b in ports]
    return tuple(_chained(a, b, ports) for a, b in pairs)


def _chained(a: str, b: str, ports: Mapping[str, Ports]) -> Join:
    name = _CHAIN_PORTS[a, b]
    port = ports[a].outputs[name]
    return Join((a, name), ((b, name),), "block", port.slots, port.nbytes)


def joins(links: Sequence[Mapping[str, Any]], ports: Mapping[str, Ports], where: str) -> tuple[Join, ...]:
    """The joins a pipeline's `links` draw; ConfigError names both ports and what does not fit."""
    made = tuple(_join(link, ports, _place(links, index, where)) for index, link in enumerate(links))
    _once(made)
    return made


def _place(links: Sequence[Any], index: int, where: str) -> str:
    named = getattr(links, "where", None)
    return f"{named(index) if named else where}: pipeline.links[{index}]"


def _join(link: Mapping[str, Any], ports: Mapping[str, Ports], where: str) -> Join:
    output, given = _find(link["from"], {name: one.outputs for name, one in ports.items()}, "output", where)
    to = [link["to"]] if isinstance(link["to"], str) else list(link["to"])
    inputs: list[tuple[str, str]] = []
    for text in to:
        place, taken = _find(text, {name: one.inputs for name, one in ports.items()}, "input", where)
        if (wrong := difference(given, taken)) is not None:
            what, ours, theirs = wrong
            raise ConfigError(
                f"the ports do not fit: {what}", where=where, found=f"{link['from']} gives {ours}",
                allowed=f"{text} takes {theirs}", remedy="put a stage between them that converts it",
            )  # fmt: skip
        if place[0] in dict(inputs):
            remedy = "give it one input, or a stage between them"
            raise ConfigError("a link to two inputs of one stage", where=where, found=text, remedy=remedy)
        inputs.append(place)
    full = link.get("policy", "block")
    return Join(
        output, tuple(inputs), full, link.get("slots", given.slots), given.nbytes, link.get("delay", False), where
    )


def _find(text: str, ports: Mapping[str, Mapping[str, Port]], side: str, where: str) -> tuple[tuple[str, str], Port]:
    stage, _, name = text.partition(".")
    if stage not in ports:
        raise ConfigError(
            "no such stage", where=where, found=text, allowed=", ".join(ports), remedy=nearest(stage, ports)
        )
    if name not in ports[stage]:
        known = [f"{stage}.{port}" for port in ports[stage]]
        allowed = ", ".join(known) or f"{stage} has none"
        raise ConfigError(f"no such {side}", where=where, found=text, allowed=allowed, remedy=nearest(text, known))
    return (stage, name), ports[stage][name]


def _once(joins: Sequence[Join]) -> None:
    """An output has one link, which may lead to several inputs; an input has one source."""
    seen: dict[tuple[str, str, str], str] = {}
    for join in joins:
        ends = [("output", *join.output), *(("input", *place) for place in join.inputs)]
        for side, stage, port in ends:
            if (first := seen.setdefault((side, stage, port), join.where)) is not join.where:
                remedy = (
                    "write one link with several inputs: to: [a.x, b.y]" if side == "output" else "join one of them"
                )
                raise ConfigError(
                    f"{side} {stage}.{port} is linked twice", where=join.where, found=f"also at {first}", remedy=remedy
                )


def loops(names: Sequence[str], joins: Sequence[Join]) -> tuple[str, ...]:
    """The stages, each behind what it takes from; ConfigError names a circle that no delay breaks."""
    before: dict[str, set[str]] = {name: set() for name in names}
    for join in joins:
        for stage, _ in () if join.delay else join.inputs:
            before[stage].add(join.output[0])
    order: list[str] = []
    while len(order) < len(before):
        free = [name for name in before if name not in order and before[name] <= set(order)]
        if not free:
            raise _circle({name: before[name] - set(order) for name in before if name not in order}, joins)
        order += free
    return tuple(order)


def _circle(before: Mapping[str, set[str]], joins: Sequence[Join]) -> ConfigError:
    path = [min(before)]
    while path[-1] not in path[:-1]:
        path.append(min(before[path[-1]]))
    path = path[path.index(path[-1]) :][::-1]
    where = next(join.where for join in joins if join.output[0] == path[0] and path[1] in dict(join.inputs))
    remedy = "mark the link that leads back with delay: true; nobody waits for its end"
    return ConfigError("the graph runs in a circle", where=where, found=" → ".join(path), remedy=remedy)


def draw(ports: Mapping[str, Ports], joins: Sequence[Join], *, whole: bool) -> Drawn:
    """Links, and what they are to whom; `whole`: ports that nothing is linked to are the caller's, unless optional."""
    builder = _Builder(ports)
    for name, one in ports.items():
        builder.link(f"{SOURCE}.{name}", SOURCE, (name,), *one.control)
    for join in joins:
        builder.join(join)
    if whole:
        builder.outside()
    for name, one in ports.items():
        builder.link(f"{name}.{SINK}", name, (SINK,), *one.sink)
    return builder.drawn()


class _Builder:
    def __init__(self, ports: Mapping[str, Ports]) -> None:
        self._ports = ports
        self._links: list[LinkSpec] = []
        self._inputs: dict[str, dict[str, str]] = {name: {} for name in ports}
        self._outputs: dict[str, dict[str, str]] = {name: {} for name in ports}
        self._failing: dict[str, set[str]] = {name: set() for name in ports}
        self._delayed: dict[str, set[str]] = {name: set() for name in ports}
        self._given: dict[tuple[str, str], str] = {}
        self._taken: dict[str, tuple[str, str]] = {}

    def link(
        self, name: str, producer: str, consumers: Sequence[str], slots: int, nbytes: int, full: Full = "block"
    ) -> None:
        # a stage that waits goes on with other requests meanwhile: it never waits inside the link
        policy: Literal["fail", "newest"] = "newest" if full == "newest" else "fail"
        others = tuple(consumers[1:])
        self._links.append(LinkSpec(name, producer, consumers[0], slots, max(nbytes, 1), policy, others=others))

    def join(self, join: Join) -> None:
        stage, port = join.output
        name = f"{stage}.{join.inputs[0][0]}"
        if any(link.name == name for link in self._links):
            name = f"{name}.{join.inputs[0][1]}"
        self.link(name, stage, [consumer for consumer, _ in join.inputs], join.slots, join.nbytes, join.full)
        self._outputs[stage][port] = name
        if join.full == "fail":
            self._failing[stage].add(port)
        for consumer, taken in join.inputs:
            self._inputs[consumer][name] = taken
            if join.delay:
                self._delayed[consumer].add(taken)

    def outside(self) -> None:
        for name, stage, port in self._loose(self._inputs, "inputs"):
            self.link(link := f"{SOURCE}.{name}", SOURCE, (stage,), port.slots, port.nbytes)
            self._inputs[stage][link] = name.partition(".")[2]
            self._given[stage, name.partition(".")[2]] = link
        for name, stage, port in self._loose(self._outputs, "outputs"):
            self.link(link := f"{name}.{SINK}", stage, (SINK,), port.slots, port.nbytes)
            self._outputs[stage][name.partition(".")[2]] = link
            self._taken[link] = stage, name.partition(".")[2]

    def _loose(self, linked: Mapping[str, Mapping[str, str]], side: str) -> Iterator[tuple[str, str, Port]]:
        for stage, one in self._ports.items():
            there = set(linked[stage]) | set(linked[stage].values())
            for name, port in getattr(one, side).items():
                if name not in there and not port.optional:
                    yield f"{stage}.{name}", stage, port

    def drawn(self) -> Drawn:
        wiring = {
            name: Wiring(
                self._inputs[name], self._outputs[name], frozenset(self._failing[name]), frozenset(self._delayed[name])
            )
            for name in self._ports
        }
        return Drawn(tuple(self._links), wiring, self._given, self._taken)
