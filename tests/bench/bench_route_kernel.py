# SPDX-License-Identifier: Apache-2.0
"""Routing in the kernel: programs beside an empty one, connect(2), publication; the short-cut beside TCP and Unix.

    python tests/bench/bench_route_kernel.py [--rounds N]

It needs what `dpfedge route attach` needs, and says so where it is not there. Everything is measured in turn, round by
round; medians count. Nothing is asserted: the figures stand beside what was asked for. That no connection is
misdirected is a test (`tests/e2e/test_route_kernel.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from peers import header

sys.path.insert(0, str(Path(__file__).parents[1]))

from own_cgroup import own_cgroup

from dpfedge.errors import Unavailable
from dpfedge.routing import Instance, Publisher, Router, Sample, Table, encode, hash_key
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.kernel.attachment import Attachment
from dpfedge.routing.kernel.client import KEY_LEVEL, KEY_OPTION
from dpfedge.routing.kernel.holder import PERIOD_S, Follower
from dpfedge.routing.kernel.libbpf import Loaded, Program, library
from dpfedge.routing.kernel.table import KernelTable
from dpfedge.routing.key import BITS, bits_for

BRIDGE = Path(__file__).parents[2] / "firmware_bridge"
KEY = ("llama-3-8b", "user-0123456789abcdef", 1735689600000)  # 43 bytes
SERVICE, PLACE = Service.parse(["10.255.0.3:8000"], "service"), ("10.255.0.3", 8000)
RUNS, CONNECTS, UPDATES, TRIPS = 1_000_000, 1000, 100, 2000
WIDE = bits_for(128)
WANTED = {
    "program, lookup / empty": "≤ 2", "program, from key to instance, no socket / empty": "≤ 2",
    "program, all of it in one / empty": "≤ 2",
    "programs of a connection, key and lookup / two empty": "≤ 2",
    "program: lookup, by the socket's hash": "≤ 83 ns", "program: all of it, key and lookup": "≤ 83 ns",
    "connect / without": "≤ 1.2", "decision → published in the kernel": "≤ 1000 µs",
    f"decision → published in the kernel, 2^{WIDE} slots": "≤ 1000 µs",
}  # fmt: skip
Figures = dict[str, tuple[list[float], str]]


class _Options(ctypes.Structure):
    """struct bpf_test_run_opts."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("sz", "data_in", "data_out")),
        *((name, ctypes.c_uint32) for name in ("data_size_in", "data_size_out")),
        *((name, ctypes.c_void_p) for name in ("ctx_in", "ctx_out")),
        *((name, ctypes.c_uint32) for name in ("ctx_size_in", "ctx_size_out", "retval", "repeat", "duration", "flags")),
        *((name, ctypes.c_uint32) for name in ("cpu", "batch_size")),
    )  # fmt: skip


def run_program(fd: int) -> tuple[int, float]:
    """What a program returns, and nanoseconds of one run of it, as the kernel measures a million."""
    data = ctypes.create_string_buffer(64)
    size = ctypes.sizeof(_Options)
    options = _Options(sz=size, data_in=ctypes.addressof(data), data_size_in=64, repeat=RUNS)
    if library().bpf_prog_test_run_opts(ctypes.c_int(fd), ctypes.byref(options)):
        raise OSError(ctypes.get_errno(), "bpf_prog_test_run")
    return int(options.retval), float(options.duration)


def nanoseconds(fd: int) -> float:
    """Of one run of a program."""
    return run_program(fd)[1]


@contextlib.contextmanager
def programs() -> Iterator[dict[str, Callable[[], float]]]:
    """What measures each program; all of them give the port of the instance that the table says."""
    out = BRIDGE / "build" / "ebpf-bench"
    subprocess.run(["bash", BRIDGE / "ebpf/build.sh", out, BRIDGE / "build", "bench"], check=True, capture_output=True)
    names = ("rh_empty", "rh_bench_key", "rh_bench_connect", "rh_bench_pure", "rh_bench_full")
    instances = [Instance(f"10.0.{i // 250}.{i % 250 + 1}:{8000 + i}") for i in range(128)]
    owners = Table.of(instances)
    key, hash = encode(*KEY), hash_key(*KEY)
    with Loaded((out / "bench.bpf.o").read_bytes(), [Program(name, 3, 0) for name in names]) as loaded:
        loaded.put(".data.rh_set", bytes(4), SERVICE.settings(0x3159454B54554F52, False))
        loaded.put("rh_bench", bytes(4), struct.pack("<Q256s", len(key), key))
        table = KernelTable(loaded, known=False)
        table.publish(owners.owners.tobytes(), [Address.of(one.name) for one in instances])
        port = 8000 + owners.lookup(*KEY)
        assert run_program(loaded.program("rh_bench_key"))[0] == hash >> 48
        for name in names[2:]:
            assert run_program(loaded.program(name))[0] == port, name
        yield {name: functools.partial(nanoseconds, loaded.program(name)) for name in names}
        table.close()


def connects(place: tuple[str, int], key: bytes | None) -> tuple[float, float]:
    """Median µs of connect(2), and of it with the setsockopt(2) before it, of a thousand connections."""
    alone, both = [], []
    for _ in range(CONNECTS):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            began = time.perf_counter_ns()
            if key is not None:
                one.setsockopt(KEY_LEVEL, KEY_OPTION, key)
            keyed = time.perf_counter_ns()
            one.connect(place)
            done = time.perf_counter_ns()
        alone.append(done - keyed)
        both.append(done - began)
    return median(alone) / 1000, median(both) / 1000


def _accept(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def measure_connects(cgroup: Path, found: Figures, rounds: int) -> None:
    """To one listener: directly, without the programs and with them attached, and by the service."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    place, address = listener.getsockname(), Address.parse("{}:{}".format(*listener.getsockname()), "listener")
    for _ in range(rounds):
        without = connects(place, None)[0]
        with Attachment(SERVICE, cgroup=cgroup) as one:
            one.table.publish(bytes(131072), [address])
            beside, (through, both) = connects(place, None)[0], connects(PLACE, encode(*KEY))
        for name, value in (
            ("connect, nothing attached", without), ("connect elsewhere, attached", beside),
            ("connect by the service", through), ("connect by the service, and setsockopt of the key", both),
        ):  # fmt: skip
            found.setdefault(name, ([], "µs"))[0].append(value)
        found.setdefault("connect / without", ([], "×"))[0].append(through / without)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def measure_updates(cgroup: Path, found: Figures, bits: int) -> None:
    """An instance fails: its table slots decided anew, table and addresses written, the generation moved."""
    instances = [Instance(f"10.0.{i // 250}.{i % 250 + 1}:8000") for i in range(128)]
    table, addresses = Table.of(instances, bits), [Address.of(one.name) for one in instances]
    slots = "" if bits == BITS else f", 2^{bits} slots"
    with Attachment(SERVICE, cgroup=cgroup, bits=bits) as one:
        for turn in range(UPDATES):
            table.find_heirs()
            began = time.perf_counter_ns()
            table.weigh(turn % 128, 0)
            decided = time.perf_counter_ns()
            one.table.publish(memoryview(table), addresses)
            published = time.perf_counter_ns()
            one.table.settle()
            settled = time.perf_counter_ns()
            table.weigh(turn % 128, 1)
            for name, value in (
                ("decision → published in the kernel", published - began),
                ("of it the kernel's maps", published - decided),
                ("grace period before the next", settled - published),
            ):  # fmt: skip
                found.setdefault(f"{name}{slots}", ([], "µs"))[0].append(value / 1000)


def measure_follower(cgroup: Path, found: Figures) -> None:
    """From a fatal sample to the kernel's table without that instance, as `dpfedge route attach` follows."""
    with tempfile.TemporaryDirectory() as folder, Publisher(Path(folder, "table")) as publisher:
        router = Router(publisher)
        router.assign([Instance(f"10.0.{i // 250}.{i % 250 + 1}:8000") for i in range(128)])
        with Attachment(SERVICE, cgroup=cgroup) as one:
            follower, ended = Follower(one, Path(folder, "table")), threading.Event()

            def follow() -> None:
                while not ended.wait(PERIOD_S):
                    follower.follow()

            thread = threading.Thread(target=follow)
            thread.start()
            for turn in range(50):
                before, began = one.table.generation, time.perf_counter_ns()
                router.sample(f"10.0.0.{turn + 1}:8000", Sample(0.1, 0.9, fatal_errors=1))
                while one.table.generation == before:
                    time.sleep(0.0002)
                spent = (time.perf_counter_ns() - began) / 1e6
                found.setdefault("fatal sample → kernel, by attach", ([], "ms"))[0].append(spent)
                time.sleep(0.03)
            ended.set()
            thread.join()


def _echo(one: socket.socket, size: int) -> None:
    with one, contextlib.suppress(OSError):
        while data := one.recv(size, socket.MSG_WAITALL):
            one.sendall(data)


def trips(one: socket.socket, other: socket.socket, size: int) -> float:
    """Median µs of a round trip of `size` bytes; both are closed."""
    thread = threading.Thread(target=_echo, args=(other, size))
    thread.start()
    data, spent = bytes(size), []
    with one:
        for _ in range(TRIPS):
            began = time.perf_counter_ns()
            one.sendall(data)
            one.recv(size, socket.MSG_WAITALL)
            spent.append(time.perf_counter_ns() - began)
    thread.join()
    return median(spent) / 1000


def measure_short_cut(cgroup: Path, found: Figures, rounds: int) -> None:
    """64 B and 64 KiB there and back: by TCP, with the short-cut, by a Unix socket."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = Address.parse("{}:{}".format(*listener.getsockname()), "listener")

    def pair(place: tuple[str, int]) -> tuple[socket.socket, socket.socket]:
        one, other = socket.create_connection(place), listener.accept()[0]
        for end in (one, other):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return one, other

    for _ in range(rounds):
        for size, text in ((64, "64 B"), (65536, "64 KiB")):
            found.setdefault(f"{text} round trip, TCP", ([], "µs"))[0].append(
                trips(*pair(listener.getsockname()), size)
            )
            with Attachment(SERVICE, cgroup=cgroup, short_cut=True) as one:
                one.table.publish(bytes(131072), [address])
                value = trips(*pair(PLACE), size)
                counted = one.counters()
            assert (counted["redirected"] >= 2 * TRIPS, counted["usual"]) == (True, 0), counted
            found.setdefault(f"{text} round trip, short-cut", ([], "µs"))[0].append(value)
            found.setdefault(f"{text} round trip, Unix", ([], "µs"))[0].append(trips(*socket.socketpair(), size))
    listener.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    header()
    found: Figures = {}
    titles = {
        "rh_empty": "program: empty", "rh_bench_key": "program: key into the socket",
        "rh_bench_connect": "program: lookup, by the socket's hash",
        "rh_bench_pure": "program: from key to instance, no socket",
        "rh_bench_full": "program: all of it, key and lookup",
    }  # fmt: skip
    try:
        with programs() as measured:
            for _ in range(rounds):
                spent = {name: measure() for name, measure in measured.items()}
                for name, value in spent.items():
                    found.setdefault(titles[name], ([], "ns"))[0].append(value)
                empty = spent["rh_empty"]
                both = (spent["rh_bench_key"] + spent["rh_bench_connect"]) / (2 * empty)
                for text, ratio in (
                    ("program, lookup / empty", spent["rh_bench_connect"] / empty),
                    ("program, from key to instance, no socket / empty", spent["rh_bench_pure"] / empty),
                    ("program, key / empty", spent["rh_bench_key"] / empty),
                    ("programs of a connection, key and lookup / two empty", both),
                    ("program, all of it in one / empty", spent["rh_bench_full"] / empty),
                ):
                    found.setdefault(text, ([], "×"))[0].append(ratio)
        with own_cgroup("bench") as cgroup:
            measure_connects(cgroup, found, rounds)
            for bits in (BITS, WIDE):
                measure_updates(cgroup, found, bits)
            measure_follower(cgroup, found)
            measure_short_cut(cgroup, found, rounds)
    except (Unavailable, OSError) as error:
        print(f"SKIPPED: {error}")
    for name, (values, unit) in found.items():
        print(f"{name:<56}{median(values):>10.3g} {unit:<4}{max(values):>10.3g} max  {WANTED.get(name, '')}")


if __name__ == "__main__":
    main()
