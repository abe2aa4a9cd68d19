# SPDX-License-Identifier: Apache-2.0
"""Routing between processes: lookups while the table changes, a writer that is killed, and the command.

As a program: `test_route.py TABLE LOOKUPS` is one of the processes that read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpfedge.routing import Instance, Published, Publisher, RouteLog, Router, Table, hash_key
from dpfedge.routing.table import ranking

INSTANCES, KEYS, UPDATES, LOOKUPS, READERS = 16, 512, 1000, 600_000, 2
FAIL = 2  # in generation g the instances g and g + 1 (mod 16) are out: two at once, other ones in the next
SESSION = ["--model", "llm", "--user", "u7", "--session-ms", "1735689600000"]


def _name(index: int) -> str:
    return f"10.1.0.{index + 1}:9000"


def _out(generation: int) -> set[int]:
    return {(generation + i) % INSTANCES for i in range(FAIL)}


def _expected(generation: int, order: list[int]) -> int:
    out = _out(generation)
    return next(index for index in order if index not in out)


def read(table: Published, lookups: int) -> dict[str, int]:
    """Look up until there were that many; whatever is not as some generation says is counted."""
    instances = [Instance(_name(index)) for index in range(INSTANCES)]
    keys = [("llm", f"u{n}", 1735689600000) for n in range(KEYS)]
    hashes = [hash_key(*key) for key in keys]
    orders = [ranking(instances, hash >> 48) for hash in hashes]
    torn = misdirected = 0
    generations = set()
    for n in range(lookups):
        at = n % KEYS
        if n % 4:  # the fast call: the answer is of a generation between two looks
            before = table.generation
            index = table.lookup(*keys[at])
            after = table.generation
            right = any(index == _expected(g, orders[at]) for g in range(before, after + 1))
        else:
            index, before, entry = table.entry(hashes[at])
            torn += entry.text != _name(index) or not entry.healthy or entry.effective != 1
            right = index == _expected(before, orders[at])
        misdirected += not right
        generations.add(before)
    return {"lookups": lookups, "torn": torn, "misdirected": misdirected, "generations": len(generations)}


def _publish(router: Router, generation: int) -> None:
    """Those who were out come back, the next ones go: one publication."""
    out = _out(generation)
    router.assign([Instance(_name(index), int(index not in out)) for index in range(INSTANCES)])
    assert router.published.generation == generation


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory of Linux")
def test_lookups__during_a_thousand_updates(tmp_path: Path) -> None:
    """None torn, none misdirected, in other processes, without a lock."""
    path = tmp_path / "table"
    with Publisher(path, capacity=INSTANCES) as publisher:
        router = Router(publisher)
        _publish(router, 1)
        readers = [
            subprocess.Popen([sys.executable, __file__, str(path), str(LOOKUPS)], stdout=subprocess.PIPE)
            for _ in range(READERS)
        ]
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"reading\n"
        generation = 1
        while generation <= UPDATES or any(reader.poll() is None for reader in readers):
            generation += 1
            _publish(router, generation)
            time.sleep(0.002 if generation < UPDATES else 0.05)
        found = [json.loads(reader.communicate()[0]) for reader in readers]
    assert [reader.returncode for reader in readers] == [0] * READERS
    assert sum(one["lookups"] for one in found) >= 1_000_000
    assert [(one["torn"], one["misdirected"]) for one in found] == [(0, 0)] * READERS
    assert all(one["generations"] > 50 for one in found)


WRITER = """
import itertools, sys
from pathlib import Path
from dpfedge.routing import Instance, Publisher, Router
router = Router(Publisher(Path(sys.argv[1]), capacity=4))
print("publishing", flush=True)
for n in itertools.count():
    router.assign([Instance("a", 1 + n % 2), Instance("b", 1), Instance("c", 1 + n % 3)])
"""


def test_writer__killed_at_any_moment(tmp_path: Path) -> None:
    """What it published last stays whole; the next one goes on from there."""
    path = tmp_path / "table"
    last = 0
    for kill in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"publishing\n"
        time.sleep(0.05 + 0.013 * kill)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        reader = Published.open(path)
        assert reader.generation > last
        last = reader.generation
        entries = reader.entries()
        table = Table.of([Instance(entry.text, entry.effective) for _, entry in sorted(entries.items())])
        assert [entry.text for _, entry in sorted(entries.items())] == ["a", "b", "c"]
        assert reader.digest() == table.digest()


def test_route__command_beside_a_router(tmp_path: Path) -> None:
    """`explain` says what the router decides; `replay` proves what it wrote; both from other processes."""
    run = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "dpfedge", "route"]
    path, log = tmp_path / "dpfedge" / "route" / "table", tmp_path / "route.log"
    with Publisher(path) as publisher, RouteLog(log, ids=True) as lines:
        router = Router(publisher, log=lines)
        router.assign([Instance(_name(index)) for index in range(INSTANCES)])
        decision = router.route("llm", "u7", 1735689600000)
        told = json.loads(subprocess.check_output([*command, "explain", *SESSION, "--json"], env=run))
        assert (told["instance"], told["slot"], told["generation"]) == (decision.instance, decision.slot, 1)
        router.leave(decision.instance)
        assert router.route("llm", "u7", 1735689600000).instance == told["successors"][0]
    proof = subprocess.run([*command, "replay", str(log)], capture_output=True, text=True, env=run)
    assert (proof.returncode, proof.stdout) == (0, "proved: 17 changes, 2 decisions; 18 tables built anew\n")


if __name__ == "__main__":
    published = Published.open(Path(sys.argv[1]))
    print("reading", flush=True)
    print(json.dumps(read(published, int(sys.argv[2]))))
