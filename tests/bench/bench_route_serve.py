# SPDX-License-Identifier: Apache-2.0
"""The whole path: a device goes bad, and a real HTTP server takes no new request on it; and what asking costs.

    python tests/bench/bench_route_serve.py [PACKAGE] [--trials N]

A server of the demo package in this process, on a loopback port; the health of its device is a stand-in's, everything
else is what `dpfedge serve` runs. Medians count; nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import socket
import tempfile
import threading
import time
import timeit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from peers import header

from dpfedge.backend.api import Device, Health
from dpfedge.pipeline.prepare import prepare
from dpfedge.routing.health import PERIOD_MS, Rule
from dpfedge.runtime import AsyncRuntime
from dpfedge.serve.app import create_app
from dpfedge.serve.instances import Instances
from dpfedge.serve.provider import Provider
from dpfedge.serve.server import Server
from dpfedge.serve.sockets import listen_tcp
from dpfedge.stage.api import Mode

ROOT = Path(__file__).parents[2]
GOOD = Health(0.2, 0.8)
KINDS = {
    "too hot and slowed down, with errors at each look, held 80 ms": Health(1.0, 0.01, 110.0, True),
    "an error that ECC could not correct": Health(0.2, 0.8, ecc_uncorrected=1),
}  # fmt: skip
BODY = json.dumps({"model": "voice", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})


class FakeBackend:
    """A device whose health the bench sets."""

    now = GOOD

    _corrected = 0

    def health(self, device: Device) -> Health:
        """The same for every device; while it is slowed down its memory errs, and is corrected."""
        self._corrected += 20 * self.now.throttled
        return replace(self.now, ecc_corrected=self._corrected)


@contextmanager
def server(package: Path, table: Path) -> Iterator[tuple[int, FakeBackend, Instances]]:
    """A warm server of the package in a thread: its port, its device, its instances."""
    sock, backend, ready = listen_tcp("127.0.0.1", 0), FakeBackend(), threading.Event()
    there: list[Any] = []

    async def run(sock: socket.socket) -> None:
        prepared = prepare(package)
        provider = Provider("voice", lambda: AsyncRuntime.launch(prepared))
        await provider.start()
        instances = provider.instances = Instances(prepared.plan, {"cpu": backend}, table, rule=Rule(up_hold_ms=200))
        one = Server(create_app(provider), provider)
        there.extend((one, instances))
        ready.set()
        await one.serve([sock])
        instances.close()
        await provider.close()

    thread = threading.Thread(target=lambda: asyncio.run(run(sock)))
    thread.start()
    assert ready.wait(120)
    yield sock.getsockname()[1], backend, there[1]
    there[0].should_exit = True
    thread.join()


def ask(connection: http.client.HTTPConnection) -> int:
    """The status of one request that is refused before it costs anything where its device is out."""
    connection.request("POST", "/v1/chat/completions", BODY, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def until(instances: Instances, healthy: bool) -> None:
    """Wait for it."""
    while instances.healthy is not healthy:
        time.sleep(0.001)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, nargs="?", default=ROOT / "build/voice.dpfbin")
    parser.add_argument("--trials", type=int, default=40)
    args = parser.parse_args()
    header()
    with (
        tempfile.TemporaryDirectory() as folder,
        server(args.package, Path(folder, "table")) as (port, backend, instances),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        assert ask(connection) == 200
        for kind, bad in KINDS.items():
            spent, refused = [], []
            for trial in range(args.trials):
                backend.now = GOOD
                until(instances, True)
                time.sleep(0.1 + PERIOD_MS / 1000 * trial / args.trials)
                began = time.perf_counter()
                backend.now = bad
                until(instances, False)
                spent.append((time.perf_counter() - began) * 1000)
                refused.append(ask(connection) == 503)
            assert all(refused)
            title = f"{kind} → no new request on it"
            print(f"{title:<64}{median(spent):>10.3g} ms  {max(spent):>10.3g} max  ≤ 210 ms")
        backend.now = GOOD
        until(instances, True)
        calls = 20_000
        each = min(timeit.repeat(lambda: instances.admit(Mode.CONVERSE), number=calls, repeat=5)) / calls * 1e6
        print(f"{'asking before a request: Instances.admit':<64}{each:>10.3g} µs")


if __name__ == "__main__":
    main()
