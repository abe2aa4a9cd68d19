# SPDX-License-Identifier: Apache-2.0
"""The routing programs in this machine's kernel, over real sockets; skipped, with the reason, where it takes none."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dpfedge._core import xxh64
from dpfedge.errors import Unavailable, UsageError
from dpfedge.routing import Table, encode, hash_key, slot_of
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.kernel.attachment import COUNTERS, Attachment
from dpfedge.routing.kernel.client import KEY_LEVEL, KEY_OPTION, give_key
from dpfedge.routing.kernel.table import INSTANCES_MAX
from dpfedge.routing.key import KEY_SEED
from tests.unit.routing.kernel.conftest import SERVICE, Attach, Servers

V4, V6, MAPPED = ("10.255.0.1", 8000), ("fd00:255::1", 8000), ("::ffff:10.255.0.1", 8000)
SESSION_BYTES = 16 + 256  # rh_session: the hash, what is known of it, room for a key
Session = tuple[str | bytes, str | bytes, int]


@pytest.fixture
def table(servers: Servers) -> Table:
    """Of the servers."""
    return Table.of(servers.instances)


@pytest.fixture
def routed(attach: Attach, servers: Servers, table: Table) -> Attachment:
    """An attachment that knows the servers."""
    one = attach()
    one.table.publish(table.owners.tobytes(), servers.addresses)
    return one


def _owner(table: Table, session: Session) -> int | None:
    return table.owner(slot_of(hash_key(*session)))


def _stream(session: Session | None, to: tuple[str, int] = V4) -> int:
    """Which server answers."""
    with socket.socket(socket.AF_INET6 if ":" in to[0] else socket.AF_INET) as one:
        one.settimeout(10)
        if session is not None:
            assert give_key(one, *session)
        one.connect(to)
        one.sendall(b"hello")
        number, text = one.recv(64).split()
        assert text == b"hello"
        return int(number)


@pytest.mark.parametrize("to", [V4, V6, MAPPED], ids=["IPv4", "IPv6", "mapped"])
def test_connect__goes_where_the_table_says(routed: Attachment, table: Table, to: tuple[str, int]) -> None:
    """Keys of every length, with NUL and bytes that are no UTF-8."""
    sessions: list[Session] = [("m" * n, "u" * (n * 7 % 121), n) for n in range(0, 121, 5)]
    sessions += [(b"\0\xff", b"", 0), (b"", b"\xfe" * 120, (1 << 64) - 1), ("模型", "用户", 1)]
    assert [_stream(one, to) for one in sessions] == [_owner(table, one) for one in sessions]
    counters = routed.counters()
    assert (counters["routed"], counters["keys"], counters["keyless"]) == (len(sessions), len(sessions), 0)


@pytest.mark.parametrize("bits", [18, 20])
def test_connect__by_a_table_of_more_slots(attach: Attach, servers: Servers, bits: int) -> None:
    """The owner of the slot that more bits of the hash name."""
    table = Table.of(servers.instances, bits)
    attach(bits=bits).table.publish(table.owners.tobytes(), servers.addresses)
    sessions: list[Session] = [("m" * n, "u" * (n * 7 % 121), n) for n in range(0, 121, 5)]
    assert [_stream(one) for one in sessions] == [table.owner(slot_of(hash_key(*one), bits)) for one in sessions]


def test_connect__golden_keys_hash_alike_in_the_kernel(
    routed: Attachment, servers: Servers, golden_keys: list[tuple[bytes, bytes, int, int]]
) -> None:
    """The table slot of each golden key belongs to one server, all others to another: the one answers."""
    for model, user, ts_ms, hash in golden_keys:
        owners = bytearray(131072)
        owners[2 * (hash >> 48)] = 1
        routed.table.publish(bytes(owners), servers.addresses)
        assert _stream((model, user, ts_ms)) == 1


def test_key__all_64_bits_of_its_hash(attach: Attach) -> None:
    """Of every length, and random bytes: what the kernel keeps of a socket is what Python computes."""
    attachment, random = attach(), Random(6)
    attachment.use_seed(0xFEDCBA9876543210)
    for length in range(241):
        model = random.randbytes(random.randint(max(0, length - 120), min(120, length)))
        user, ts_ms = random.randbytes(length - len(model)), random.getrandbits(64)
        with socket.socket() as one:
            assert give_key(one, model, user, ts_ms)
            kept = attachment._loaded.get("rh_sessions", one.fileno().to_bytes(4, "little"), SESSION_BYTES)
        assert kept is not None
        assert int.from_bytes(kept[:8], "little") == hash_key(model, user, ts_ms, 0xFEDCBA9876543210), length


def test_connect__without_a_key_sticks_to_one(routed: Attachment) -> None:
    """One user's processes of one cgroup."""
    assert len({_stream(None) for _ in range(8)}) == 1
    assert routed.counters()["keyless"] == 8


def test_connect__to_nobody_is_refused_at_once(routed: Attachment) -> None:
    """No instance, or none that the kernel reaches: an error, not a hang."""
    routed.table.publish(b"\xff" * 131072, [])
    for owners in (b"\xff" * 131072, bytes(131072)):
        routed.table.publish(owners, [None])
        for to in (V4, V6):
            with pytest.raises(PermissionError):
                _stream(("m", "u", 1), to)
    assert routed.counters()["nobody"] == 4


def test_connect__to_others_is_left_alone(routed: Attachment, servers: Servers) -> None:
    """Another address, another port of the service's address."""
    place = servers.tcp[2].getsockname()
    assert _stream(None, place) == 2
    assert routed.counters()["routed"] == 0


@pytest.mark.parametrize(
    "key", [b"", bytes(11), bytes(13), b"\xff" * 252, bytes(253), b"\x79\0" + b"a" * 121 + bytes(10), bytes(5000),
            encode("m", "u", 1) + b"x", encode("m", "u", 1)[:-1]],
    ids=lambda key: str(len(key)),
)  # fmt: skip
def test_key__that_is_none_is_refused(routed: Attachment, key: bytes) -> None:
    """A field of 121 bytes, lengths that do not fit, too short, too long."""
    with socket.socket() as one, pytest.raises(PermissionError):
        one.setsockopt(KEY_LEVEL, KEY_OPTION, key)
    assert routed.counters()["bad_keys"] == 1


def test_key__of_another_option_is_the_kernels_business(routed: Attachment) -> None:
    """Other options of our level, and all of other levels."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        with pytest.raises(OSError, match="available"):
            one.setsockopt(KEY_LEVEL, KEY_OPTION + 1, b"x")


def test_datagrams__each_goes_there_and_the_answer_comes_from_the_service(routed: Attachment, table: Table) -> None:
    """sendto and connect; the sender of an answer is whom was asked."""
    for user in map(str, range(12)):
        session = ("llm", user, 7)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(10)
            assert give_key(one, *session)
            one.sendto(b"x", V4)
            data, sender = one.recvfrom(64)
            assert (int(data.split()[0]), sender) == (_owner(table, session), V4)
            one.connect(V4)
            one.send(b"y")
            assert int(one.recv(64).split()[0]) == _owner(table, session)
    assert routed.counters()["answered"] == 12


def test_datagrams__of_ipv6(attach: Attach) -> None:
    """To an instance of IPv6; one of IPv4 cannot be reached by an unconnected socket of IPv6, and is refused."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    attachment = attach()
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one,
    ):
        try:
            server.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no ::1 here: {error}")
        port = server.getsockname()[1]
        attachment.table.publish(bytes(131072), [Address.of(f"[::1]:{port}")])
        one.settimeout(10)
        server.settimeout(10)
        one.sendto(b"x", V6)
        data, sender = server.recvfrom(9)
        server.sendto(data + b"y", sender)
        assert one.recvfrom(9)[1][:2] == V6
        attachment.table.publish(bytes(131072), [Address.of(f"127.0.0.1:{port}")])
        with pytest.raises(PermissionError):
            one.sendto(b"x", V6)


def test_receive__an_instances_address_by_a_registered_socket(attach: Attach, servers: Servers) -> None:
    """What arrives for 127.0.0.9:7, where nobody listens, goes to the socket that serves it, until that closes."""
    attachment = attach()
    place = Address.parse("127.0.0.9:7", "x")
    attachment.table.publish(bytes(131072), [place])
    with pytest.raises(ConnectionRefusedError):
        _stream(None)
    attachment.serve(place, servers.tcp[3])
    assert _stream(None) == 3
    assert _stream(None, ("127.0.0.9", 7)) == 3
    assert attachment.counters()["received"] == 2
    attachment.serve(place, servers.udp[2])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(10)
        one.sendto(b"x", V4)  # it answers from the address it is bound to: a connected socket would not take that
        assert one.recv(64) == b"2 x"


def test_receive__from_a_host_without_the_programs(
    attach: Attach, servers: Servers, table: Table, cgroup: Path | None
) -> None:
    """It asks for the service itself, without a key: the sender's address decides, by the same table."""
    if cgroup is None:
        pytest.skip("no cgroup can be made here")
    elsewhere = cgroup / "elsewhere"  # nobody is in it: this process connects as if it were on another host
    elsewhere.mkdir()
    try:
        with Attachment(Service.parse(["127.77.1.1:8000"], "x"), cgroup=elsewhere) as attachment:
            attachment.table.publish(table.owners.tobytes(), servers.addresses)
            for address, listener in zip(servers.addresses, servers.tcp, strict=True):
                assert address is not None
                attachment.serve(address, listener)
            for sender in (f"127.0.2.{number}" for number in range(1, 20)):
                with socket.create_connection(("127.77.1.1", 8000), 10, (sender, 0)) as one:
                    one.sendall(b"x")
                    hash = xxh64(Address.parse(f"{sender}:1", "x").known[:16], KEY_SEED)
                    assert one.recv(64) == b"%d x" % (table.owner(slot_of(hash)) or 0)
            assert attachment.counters()["received"] == 19
            attachment.table.publish(b"\xff" * 131072, [])
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.77.1.1", 8000), 10)
    finally:
        elsewhere.rmdir()


def test_receive__takes_listening_sockets_only(attach: Attach) -> None:
    """Others are refused, with what is taken."""
    attachment = attach()
    place = Address.parse("127.0.0.9:7", "x")
    with socket.socket() as one, pytest.raises(UsageError, match="listening TCP socket"):
        attachment.serve(place, one)
    with socket.socket(socket.AF_UNIX) as one, pytest.raises(UsageError):
        attachment.serve(place, one)
    with Path("/dev/null").open() as file, pytest.raises(UsageError, match="another type"):
        attachment.serve(place, file.fileno())


def test_receive__not_wanted(attach: Attach, servers: Servers) -> None:
    """Then nothing can be registered."""
    with pytest.raises(UsageError, match="does not receive"):
        attach(receive=False).serve(Address.parse("127.0.0.9:7", "x"), servers.tcp[0])


def test_short_cut__is_proved_by_its_counters(attach: Attach, servers: Servers, table: Table) -> None:
    """Both ends join, and each message goes from socket to socket, whole and in order."""
    attachment = attach(short_cut=True)
    attachment.table.publish(table.owners.tobytes(), servers.addresses)
    sessions: list[Session] = [("llm", str(user), 1) for user in range(10)]
    for to in (V4, V6, MAPPED):
        assert [_stream(one, to) for one in sessions] == [_owner(table, one) for one in sessions]
    counters = attachment.counters()
    assert (counters["joined"], counters["redirected"], counters["usual"]) == (60, 60, 0)
    assert counters["redirected_bytes"] == 30 * len("hello" + "0 hello")


def test_short_cut__with_a_listener_outside_the_cgroup(attach: Attach, cgroup: Path | None) -> None:
    """It is not joined: its connections go the usual way, and the counters say so."""
    if cgroup is None:
        pytest.skip("no cgroup can be made here")
    code = (
        "import socket, sys\n"
        "open(sys.argv[1], 'w').write('0')\n"
        "one = socket.create_server(('127.0.0.1', 0))\n"
        "print(one.getsockname()[1], flush=True)\n"
        "other, _ = one.accept()\n"
        "other.sendall(b'7 ' + other.recv(64))\n"
    )
    command = [sys.executable, "-c", code, str(cgroup.parent / "cgroup.procs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        attachment = attach(short_cut=True)
        attachment.table.publish(bytes(131072), [Address.of(f"127.0.0.1:{process.stdout.readline().strip()}")])
        assert _stream(None) == 7
    counters = attachment.counters()
    assert (counters["joined"], counters["redirected"], counters["usual"]) == (1, 0, 1)


def test_short_cut__of_a_long_stream(attach: Attach) -> None:
    """Megabytes in pieces of every size, each way at once, arrive as they were sent."""
    attachment = attach(short_cut=True)
    sent = bytes(range(256)) * 16384
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as one:
        attachment.table.publish(bytes(131072), [Address.of(f"127.0.0.1:{listener.getsockname()[1]}")])

        def echo() -> None:
            other, _ = listener.accept()
            with other:
                while data := other.recv(1 << 16):
                    other.sendall(data)

        thread = threading.Thread(target=echo)
        thread.start()
        one.settimeout(30)
        one.connect(V4)
        sender = threading.Thread(target=lambda: any(map(one.sendall, _pieces(sent))))
        sender.start()
        got = bytearray()
        while len(got) < len(sent):
            got += one.recv(1 << 16)
        sender.join()
    thread.join()
    assert got == sent
    assert attachment.counters()["redirected_bytes"] == 2 * len(sent)


def _pieces(data: bytes) -> Iterator[bytes]:
    at, size = 0, 1
    while at < len(data):
        yield data[at : at + size]
        at, size = at + size, min(size * 2 + 1, 1 << 17)


def test_attachments__one_below_the_other(attach: Attach, servers: Servers, table: Table) -> None:
    """A key is taken by both; who has rewritten the address has decided."""
    for one in (attach(), attach(above=True)):
        one.table.publish(table.owners.tobytes(), servers.addresses)
    session = ("llm", "alice", 1)
    assert _stream(session) == _owner(table, session)


def test_layouts__are_those_of_the_programs() -> None:
    """Counters and numbers here are those of maps.h."""
    text = (Path(__file__).parents[4] / "firmware_bridge/ebpf/maps.h").read_text()
    counters = text[text.index("typedef struct rh_counters") : text.index("} rh_counters;")]
    assert tuple(re.findall(r"__u64 (\w+);", counters)) == COUNTERS
    assert f"RH_INSTANCES = {INSTANCES_MAX}," in text
    assert f"RH_LEVEL = {KEY_LEVEL:#x}," in text
    assert f"RH_KEY = {KEY_OPTION}," in text


def test_attachment__closed_leaves_nothing(attach: Attach, servers: Servers) -> None:
    """The option is unknown again, and the service nobody's."""
    one = attach(short_cut=True)
    one.table.publish(bytes(131072), servers.addresses)
    assert _stream(None) == 0
    one.close()
    with socket.socket() as other:
        assert not give_key(other, "m", "u", 1)


def test_attachment__where_no_cgroup_is(attach: Attach, tmp_path: Path) -> None:
    """It says so; nothing is loaded."""
    with pytest.raises(Unavailable, match="no cgroup v2 is there"):
        Attachment(SERVICE, cgroup=tmp_path)
