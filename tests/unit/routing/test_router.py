# SPDX-License-Identifier: Apache-2.0
"""The router: instances and health in, published tables out; indices that rest; restarts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpfedge.errors import NoInstance, UsageError
from dpfedge.routing.health import Sample
from dpfedge.routing.instances import Instance
from dpfedge.routing.key import hash_key, slot_of
from dpfedge.routing.log import RouteLog
from dpfedge.routing.publication import Published, Publisher
from dpfedge.routing.router import GRACE_NS, Router
from dpfedge.routing.table import Table

BITS = 8
KEY = ("llm", "alice", 1735689600000)
FATAL = Sample(0.1, 0.9, fatal_errors=1)


class Clock:
    """CLOCK_MONOTONIC, turned by hand."""

    def __init__(self) -> None:
        self.ns = 10 * GRACE_NS

    def __call__(self) -> int:
        return self.ns


def _router(clock: Clock | None = None, publisher: Publisher | None = None) -> Router:
    return Router(publisher or Publisher(None, bits=BITS, capacity=8), clock=clock or Clock())


def test_route__the_instance_of_the_published_table() -> None:
    """Hash, table slot, index and generation of one answer."""
    router = _router()
    router.assign([Instance("a"), Instance("b", 2), Instance("c")])
    decision = router.route(*KEY)
    assert decision.hash == hash_key(*KEY)
    assert decision.slot == slot_of(decision.hash, BITS)
    assert decision.index == router.published.lookup(*KEY) == router.table.lookup(*KEY)
    assert (decision.instance, decision.generation) == ("abc"[decision.index], 1)


def test_route__without_a_healthy_instance() -> None:
    """NoInstance, and its health map says why."""
    router = _router()
    with pytest.raises(NoInstance):
        router.route(*KEY)
    router.join("a", 3)
    router.sample("a", FATAL)
    with pytest.raises(NoInstance) as caught:
        router.route(*KEY)
    assert caught.value.health == {"a": {"health": 0.0, "healthy": False, "weight": 3, "effective": 0}}
    assert router.health_map() == caught.value.health


def test_join__refuses_a_name_that_is_here() -> None:
    """Two instances with one name; and names that nobody has."""
    router = _router()
    router.join("a")
    with pytest.raises(UsageError, match="an instance of this name is here"):
        router.join("a", 2)
    with pytest.raises(UsageError, match="two instances have one name"):
        router.assign([Instance("b"), Instance("b")])
    with pytest.raises(UsageError, match=r"no instance has this name.*allowed a"):
        router.leave("b")
    assert router.published.generation == 1


def test_sample__takes_out_and_back() -> None:
    """Only its slots move; the table is as before when it is back."""
    clock = Clock()
    router = _router(clock)
    router.assign([Instance(name) for name in "abcd"])
    before, digest = router.table.owners.copy(), router.table.digest()
    change = router.sample("c", FATAL)
    assert change is not None
    assert (change.weight, change.why) == (0, "not healthy: health 0.0000")
    changed = router.table.owners != before
    assert np.all(before[changed] == change.index)
    assert change.moved == np.count_nonzero(changed) == np.count_nonzero(before == change.index)
    assert router.sample("c", Sample(0, 1)) is None
    clock.ns += 5 * GRACE_NS
    back = router.sample("c", Sample(0, 1))
    assert back is not None
    assert (back.weight, back.moved, router.table.digest()) == (1, change.moved, digest)
    assert router.published.digest() == digest


def test_expire__takes_out_who_is_silent() -> None:
    """All at once, in one publication."""
    clock = Clock()
    router = _router(clock)
    router.assign([Instance(name) for name in "abc"])
    router.sample("a", Sample(0, 1))
    router.sample("b", Sample(0, 1))
    generation = router.published.generation
    assert router.expire() == []
    clock.ns += GRACE_NS
    assert [change.name for change in router.expire()] == ["a", "b"]
    assert router.published.generation == generation + 1
    assert router.route(*KEY).instance == "c"


def test_batch__publishes_once() -> None:
    """Readers see all of it or none; changes name the generation that has them."""
    router = _router()
    with router.batch():
        changes = [router.join(name) for name in "abc"]
        with pytest.raises(NoInstance):
            router.route(*KEY)
    assert {change.generation for change in changes} == {1} == {router.published.generation}
    with router.batch():
        pass
    assert router.published.generation == 1
    assert router.publish() == 2


def test_weigh__keeps_the_health() -> None:
    """An instance that is out stays out."""
    router = _router()
    router.assign([Instance("a"), Instance("b")])
    router.sample("a", FATAL)
    assert (router.weigh("a", 5).weight, router.health_map()["a"]["weight"]) == (0, 5)
    assert router.weigh("b", 7).weight == 7


def test_leave__its_index_rests() -> None:
    """Nobody gets it for a second; who comes back gets its own at once."""
    clock = Clock()
    router = _router(clock)
    router.assign([Instance("a"), Instance("b")])
    digest = router.table.digest()
    assert router.leave("a").index == 0
    assert router.join("c").index == 2
    router.leave("c")
    assert router.join("a").index == 0
    assert router.table.digest() == digest
    router.leave("a")
    clock.ns += GRACE_NS
    assert router.join("d").index == 2
    assert router.join("e").index == 0


def test_join__no_more_than_there_is_room_for() -> None:
    """The published table's capacity is a bound; a refused one changes nothing."""
    router = _router()
    router.assign([Instance(f"i{n}") for n in range(8)])
    with pytest.raises(UsageError, match="no room for another instance"):
        router.join("one more")
    assert len(router.health_map()) == 8


def test_assign__moves_what_changed_only() -> None:
    """The same again is no change; others leave, join and are weighed."""
    router = _router()
    router.assign([Instance("a"), Instance("b")])
    assert router.assign([Instance("b"), Instance("a")]) == []
    changes = router.assign([Instance("b", 3), Instance("c")])
    assert [(change.name, change.why) for change in changes] == [("a", "leave"), ("b", "weight"), ("c", "join")]
    assert router.table.digest() != Table.of([Instance("b", 3), Instance("c")], BITS).digest()  # other indices
    assert {router.route("m", f"u{n}", 0).instance for n in range(50)} == {"b", "c"}


def test_assign__of_the_first_instances_is_as_joining_them(tmp_path: Path) -> None:
    """Indices, table and health are the same; with a log, which has the table after each of them, too."""
    instances = [Instance("a"), Instance("b", 2), Instance("c", 3, healthy=False), Instance("d", 0)]
    at_once, joined = _router(), _router()
    changes = at_once.assign(instances)
    for one in instances:
        joined.join(one.name, one.weight, healthy=one.healthy)
    with RouteLog(tmp_path / "log") as log:
        logged = Router(Publisher(None, bits=BITS, capacity=8), log=log)
        assert [one.index for one in logged.assign(instances)] == [one.index for one in changes] == [0, 1, 2, 3]
    assert at_once.table.digest() == joined.table.digest() == logged.table.digest() == at_once.published.digest()
    assert at_once.health_map() == joined.health_map()
    assert sum(change.moved for change in changes) == 1 << BITS
    assert {(change.generation, change.why) for change in changes} == {(1, "join")}
    at_once.sample("c", Sample(0.1, 0.9))
    assert at_once.assign([]) != []
    assert at_once.assign([Instance("b", 2)])[0].index == 1


def test_router__knows_the_heirs_of_what_it_published(tmp_path: Path) -> None:
    """After each change, and after a restart: the next failure needs no decision."""
    with Publisher(tmp_path / "table", bits=BITS, capacity=8) as publisher:
        router = _router(publisher=publisher)
        router.assign([Instance("a"), Instance("b", 2), Instance("c")])
        assert router.table.find_heirs(0) == 0
        router.sample("c", FATAL)
        assert router.table.find_heirs(0) == 1 << BITS  # which wait for samples that change nothing
        router.sample("c", FATAL)
        assert router.table.find_heirs(0) == max(0, (1 << BITS) - 4096)
        router.leave("a")
        assert router.table.find_heirs(0) == 0
    with Publisher(tmp_path / "table", bits=BITS, capacity=8) as publisher:
        assert _router(publisher=publisher).table.find_heirs(0) == 0


def test_router__restart_moves_nothing(tmp_path: Path) -> None:
    """It begins with what was published, health included."""
    with Publisher(tmp_path / "table", bits=BITS, capacity=8) as publisher:
        first = _router(publisher=publisher)
        first.assign([Instance("a"), Instance("b", 2), Instance("c")])
        first.leave("a")
        first.sample("c", FATAL)
        here, digest = first.health_map(), first.table.digest()
    reader, clock = Published.open(tmp_path / "table"), Clock()
    with Publisher(tmp_path / "table", bits=BITS, capacity=8) as publisher:
        second = _router(clock, publisher)
        assert (second.health_map(), second.table.digest(), reader.generation) == (here, digest, 3)
        assert second.assign([Instance("b", 2), Instance("c")]) == []
        assert second.join("d").index == 3
        assert second.join("a").index == 0
    assert reader.generation == 5


def test_router__over_entries_that_make_no_sense(tmp_path: Path) -> None:
    """Of a machine that went down in a publication: nothing is taken over, and the next one is whole."""
    path = tmp_path / "table"
    with Publisher(path, bits=BITS, capacity=8) as publisher:
        _router(publisher=publisher).assign([Instance("a"), Instance("b")])
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    for _ in range(2):
        with Publisher(path, bits=BITS, capacity=8) as publisher:
            router = _router(publisher=publisher)
            router.assign([Instance("b"), Instance("c", 2)])
            assert Published.open(path).health_map().keys() == router.health_map().keys() == {"b", "c"}
            assert Published.open(path).digest() == router.table.digest()
            assert router.route(*KEY).instance in {"b", "c"}
