# SPDX-License-Identifier: Apache-2.0
"""The published table: one writer, many readers, files of others, and a writer that dies."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from dpfedge import _core
from dpfedge.errors import NoInstance, RouteError, Unavailable, UsageError
from dpfedge.routing.instances import Instance
from dpfedge.routing.key import hash_key
from dpfedge.routing.publication import ENTRY_BYTES, Entry, Published, Publisher, default_path, name_of
from dpfedge.routing.table import Table

BITS, CAPACITY = 8, 4
KEY = ("llm", "alice", 1735689600000)


def _instances(*weights: int) -> list[Instance]:
    return [Instance(f"10.0.0.{i + 1}:8000", weight) for i, weight in enumerate(weights)]


def _entries(instances: list[Instance]) -> bytes:
    entries = (Entry(one.encoded, one.seed, one.weight, one.effective, address=one.address) for one in instances)
    return b"".join(entry.pack() for entry in entries)


def _publish(publisher: Publisher, *weights: int) -> Table:
    instances = _instances(*weights)
    table = Table.of(instances, BITS)
    publisher.publish(table, _entries(instances))
    return table


def _new(path: Path | None) -> Publisher:
    return Publisher(path, bits=BITS, capacity=CAPACITY)


def test_published__is_what_was_published(tmp_path: Path) -> None:
    """Owners, entries, digest; each publication is a generation."""
    with _new(tmp_path / "run" / "table") as publisher:
        reader = Published.open(tmp_path / "run" / "table")
        assert (reader.generation, reader.bits, reader.capacity, reader.published_ns) == (0, BITS, CAPACITY, 0)
        for generation, weights in enumerate([(1, 1, 1), (1, 0, 5), (0, 0, 1)], 1):
            table = _publish(publisher, *weights)
            index, seen, entry = reader.entry(hash_key(*KEY))
            assert (reader.lookup(*KEY), seen, reader.generation) == (index, generation, generation)
            assert (index, entry.effective) == (table.lookup(*KEY), weights[index])
            assert reader.digest() == table.digest()
            assert [one.weight for one in reader.entries().values()] == list(weights)
        assert entry.address == (bytes([10, 0, 0, index + 1]), 8000)
        assert entry.name == f"10.0.0.{index + 1}:8000".encode()
        assert reader.published_ns > 0


def test_published__without_instances(tmp_path: Path) -> None:
    """NoInstance with the health map, before the first publication and when all are out."""
    with _new(tmp_path / "table") as publisher:
        reader = Published.open(tmp_path / "table")
        with pytest.raises(NoInstance) as caught:
            reader.lookup(*KEY)
        assert caught.value.health == {}
        one = Instance("gpu-0", 3, healthy=False)
        publisher.publish(Table.of([one], BITS), Entry(one.encoded, one.seed, 3, 0, healthy=False, health=0.04).pack())
        for ask in (lambda: reader.lookup(*KEY), lambda: reader.entry(hash_key(*KEY))):
            with pytest.raises(NoInstance) as caught:
                ask()
            assert caught.value.http_status == 503
            assert caught.value.health == {"gpu-0": {"health": 0.04, "healthy": False, "weight": 3, "effective": 0}}


def test_published__refuses_impossible_ids() -> None:
    """As the table does."""
    with _new(None) as publisher, pytest.raises(UsageError, match="model: the id is too long"):
        Published(publisher.fd).lookup("m" * 121, "u", 1)


def test_publisher__in_memory_without_a_name() -> None:
    """Others get the descriptor; a reader's mapping outlives the publisher."""
    publisher = _new(None)
    reader = Published(publisher.fd)
    table = _publish(publisher, 1, 1)
    publisher.close()
    assert reader.lookup(*KEY) == table.lookup(*KEY)


def test_publisher__goes_on_with_what_is_there(tmp_path: Path) -> None:
    """A restart keeps file, table and generation: readers notice nothing."""
    with _new(tmp_path / "table") as first:
        table = _publish(first, 1, 1, 1)
        reader = Published.open(tmp_path / "table")
    with _new(tmp_path / "table") as second:
        assert (second.generation, reader.digest()) == (1, table.digest())
        _publish(second, 0, 1, 1)
        assert (reader.generation, reader.entries()[0].effective) == (2, 0)


def test_publisher__replaces_a_table_of_another_form(tmp_path: Path) -> None:
    """Readers of the old one are told to open it again, and do not believe it for ever."""
    with _new(tmp_path / "table") as first:
        _publish(first, 1, 1)
    old = Published.open(tmp_path / "table")
    with Publisher(tmp_path / "table", bits=BITS + 1, capacity=CAPACITY):
        for ask in (lambda: old.lookup(*KEY), lambda: old.entry(hash_key(*KEY))):
            with pytest.raises(RouteError, match="another table took the place of this one; open it again"):
                ask()
        assert old.ended
        assert Published.open(tmp_path / "table").bits == BITS + 1
    with pytest.raises(UsageError, match="not opened for writing"):
        old.end()
    (tmp_path / "table").write_bytes(b"something else" * 1000)
    with _new(tmp_path / "table") as third:
        assert third.generation == 0


def test_withdraw__who_reads_it_is_told(tmp_path: Path) -> None:
    """Nothing is left; a second time, and of a table in memory, it is a close."""
    first = _new(tmp_path / "table")
    _publish(first, 1, 1)
    reader = Published.open(tmp_path / "table")
    for _ in range(2):
        first.withdraw()
    for ask in (lambda: reader.lookup(*KEY), lambda: _publish(first, 1, 1)):
        with pytest.raises(RouteError, match="open it again"):
            ask()
    assert reader.ended
    assert list(tmp_path.iterdir()) == []
    nameless = _new(None)
    _publish(nameless, 1, 1)
    reader = Published(nameless.fd)
    nameless.withdraw()
    assert not reader.ended


def test_publisher__others_may_read_it_when_told(tmp_path: Path) -> None:
    """Only this user by default: the key seed may be a secret."""
    path = tmp_path / "table"
    for mode in (0o600, 0o644, 0o600):
        Publisher(path, bits=BITS, capacity=CAPACITY, mode=mode).close()
        assert path.stat().st_mode & 0o777 == mode


def test_publisher__is_the_only_one(tmp_path: Path) -> None:
    """A second one is refused and told who is first."""
    with _new(tmp_path / "table"), pytest.raises(RouteError, match=f"another process.*found process {os.getpid()}"):
        _new(tmp_path / "table")
    _new(tmp_path / "table").close()


def test_publisher__refuses_what_does_not_fit() -> None:
    """Other bits, another key seed, too many instances, a table opened for reading."""
    with _new(None) as publisher:
        bad = [Table(BITS + 1), Table(BITS, 7)]
        for table in bad:
            with pytest.raises(UsageError, match="does not fit"):
                publisher.publish(table, b"")
        with pytest.raises(UsageError, match="does not fit"):
            publisher.publish(Table(BITS), bytes(ENTRY_BYTES * (CAPACITY + 1)))
        with pytest.raises(UsageError, match="does not fit"):
            publisher.publish(Table(BITS), bytes(ENTRY_BYTES - 1))
        with pytest.raises(UsageError, match="opened for writing"):
            _core.RouteMap(publisher.fd).publish(Table(BITS), b"")
        assert publisher.generation == 0
    with pytest.raises(UsageError, match=r"found 3 bits, 4 instances; allowed 4\.\.22 bits"):
        Publisher(None, bits=3, capacity=4)


def test_open__what_is_no_table(tmp_path: Path) -> None:
    """Nothing there, other files, cut ones, and a table of another version; each says which file."""
    path = tmp_path / "table"
    with pytest.raises(Unavailable, match="no routing table is published there"):
        Published.open(path)
    with _new(path) as publisher:
        _publish(publisher, 1)
    good = path.read_bytes()
    version = good[:8] + struct.pack("=I", 2) + good[12:]
    cases = {
        b"": "wrong size", b"x" * 100: "wrong size", bytes(8192): "no routing table", good[:-4096]: "wrong size",
        version: "another version; found version 2; allowed version 1", good[:12] + b"\xff" + good[13:]: "impossible",
        good[:16] + struct.pack("=I", 60000) + good[20:]: "wrong size", good[:20] + b"\0" + good[21:]: "impossible",
    }  # fmt: skip
    for data, text in cases.items():
        path.write_bytes(data)
        with pytest.raises(RouteError, match=text) as caught:
            Published.open(path)
        assert caught.value.where == str(path)


def test_published__hostile_owners_point_nowhere(tmp_path: Path) -> None:
    """An index beyond the entries is no instance."""
    with _new(tmp_path / "table") as publisher:
        _publish(publisher, 1)
        with (tmp_path / "table").open("r+b") as file:
            file.seek(4096 + (os.path.getsize(tmp_path / "table") - 4096) // 2)
            file.write(b"\x77" * (2 << BITS))
        reader = Published.open(tmp_path / "table")
        with pytest.raises(NoInstance):
            reader.entry(hash_key(*KEY))


def test_publisher__folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in /tmp that another user made first is not written to."""
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 12345)
    if tmp_path.stat().st_uid == 0:
        os.chown(tmp_path, 54321, -1)
    with pytest.raises(RouteError, match="belongs to somebody else"):
        _new(tmp_path / "table")


def test_publisher__no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is an error before anything is replaced."""

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RouteError, match="No space left"):
        _new(tmp_path / "table")
    monkeypatch.undo()
    _new(tmp_path / "table").close()


def test_default_path__is_in_the_run_directory() -> None:
    """Of this user."""
    assert default_path({"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7/dpfedge/route/table")


def test_entry__long_names() -> None:
    """256 bytes come back whole."""
    entry = Entry(b"n" * 256, 5, 65535, 1, False, 0.1234, (b"\1\2\3\4", 65535))
    assert Entry.unpack(entry.pack()) == entry
    assert name_of(entry.pack()) == entry.text == "n" * 256
    assert Entry.unpack(bytes(_core.ROUTE_ENTRY_BYTES)) is None


def test_publisher__where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of the table, not of its lock, and nothing is left of the attempt; with room it is made."""

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        for name in ("pwrite", "posix_fallocate"):
            disk.setattr(os, name, full)
        with pytest.raises(RouteError, match=r"memory cannot be made.*No space left"):
            Publisher(tmp_path / "table", bits=8, capacity=4)
    assert [path.name for path in tmp_path.iterdir()] == ["table.lock"]
    Publisher(tmp_path / "table", bits=8, capacity=4).close()
