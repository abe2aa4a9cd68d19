# SPDX-License-Identifier: Apache-2.0
"""`/v1/health-map` of a real server, and what a client is told when no instance is healthy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from dpfedge.backend.api import Device, Health
from dpfedge.errors import NoInstance
from dpfedge.hardware.source.root import Root
from dpfedge.routing import Fingerprints, Instance, Publisher, Router, Rule, Sample
from dpfedge.routing.fingerprint import HEADER
from dpfedge.routing.salt import DailySalt
from dpfedge.serve.errors import error_body, error_headers, error_status
from dpfedge.serve.instances import Instances
from dpfedge.stage.api import Mode

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this host's router would publish."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "dpfedge" / "route" / "table"


def test_health_map__is_what_the_router_published(http: httpx.Client, table: Path) -> None:
    """Health, weights, generation; a change is seen by the next request."""
    with Publisher(table) as publisher:
        router = Router(publisher)
        router.assign([Instance("gpu-0", 2), Instance("gpu-1")])
        told = http.get("/v1/health-map").json()
        assert (told["generation"], told["healthy"]) == (1, 2)
        assert told["table"] == {"bits": 16, "digest": f"{router.table.digest():016x}"}
        assert told["instances"]["gpu-0"] == {"health": 1.0, "healthy": True, "weight": 2, "effective": 2}
        assert told["devices"]["by"] == "/proc"
        router.sample("gpu-0", Sample(0.5, 0.5, fatal_errors=1))
        told = http.get("/v1/health-map").json()
        assert (told["generation"], told["healthy"]) == (2, 1)
        assert told["instances"]["gpu-0"] == {"health": 0.0, "healthy": False, "weight": 2, "effective": 0}


def test_health_map__where_nobody_routes(http: httpx.Client, table: Path) -> None:
    """404; and 500 for a file that is no table."""
    answer = http.get("/v1/health-map")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_routing_table")
    table.parent.mkdir(parents=True)
    table.write_bytes(bytes(8192))
    answer = http.get("/v1/health-map")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "route_error")


class FakeBackend:
    """A device whose health a test sets; a bad one fails anew at each look."""

    now, looks = Health(0.1, 0.9), 0

    def health(self, device: Device) -> Health:
        """The same for every device."""
        self.looks += 1
        return replace(self.now, faults=self.now.faults * self.looks)


@pytest.fixture
def device(own: Any) -> Iterator[FakeBackend]:
    """The server's llm is on one device."""
    backend = FakeBackend()
    where = {"llm": Device("cuda:0", "fake", "gpu.nvidia", "fake", "sm_90", frozenset(), 1 << 30)}
    graph = SimpleNamespace(route=lambda mode: ("decoder", "encoder", "llm", "voice") if mode is not Mode.SPEAK else ())
    placed: Any = SimpleNamespace(name="fake", graph=graph, devices=lambda: where)
    instances = own.provider.instances = Instances(placed, {"fake": backend}, None, rule=Rule(up_hold_ms=0))
    yield backend
    instances.close()


def _until(own: Any, wanted: int) -> httpx.Response:
    until = time.monotonic() + 20
    while (answer := httpx.post(f"{own.url}/v1/chat/completions", json=CHAT)).status_code != wanted:
        assert time.monotonic() < until
    return answer


def test_device__that_fails_gets_no_new_request(own: Any, device: FakeBackend) -> None:
    """503 with the health map at once, until it is well again; what needs it not is served, and no answer is lost."""
    answer = _until(own, 200)
    assert answer.headers["dpf-instance"] == "cuda:0"
    assert httpx.get(f"{own.url}/readyz").status_code == 200
    device.now = Health(0.1, 0.9, faults=1)
    answer = _until(own, 503)
    error = answer.json()["error"]
    assert (error["code"], answer.headers["retry-after"]) == ("no_instance", "1")
    assert error["health"]["cuda:0"]["healthy"] is False
    told = httpx.get(f"{own.url}/v1/health-map").json()
    assert (told["healthy"], told["stages"], told["main"]) == (0, {"llm": "cuda:0"}, "cuda:0")
    ready = httpx.get(f"{own.url}/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "unhealthy")
    said = httpx.post(f"{own.url}/v1/audio/speech", json={"model": "joe", "voice": "joe", "input": "hello"})
    assert said.status_code == 200
    text = httpx.get(f"{own.url}/metrics").text
    assert 'dpfedge_instance_healthy{instance="cuda:0"} 0' in text
    assert httpx.get(f"{own.url}/v1/status").json()["routing"]["refused"] >= 1
    device.now = Health(0.1, 0.9)
    assert _until(own, 200).json()["choices"]


def test_demoted__says_so(own: Any) -> None:
    """By RFC 9218's own header, and why."""
    _until(own, 200)
    own.runtime.low = True
    answer = httpx.post(f"{own.url}/v1/chat/completions", json=CHAT, headers={"Priority": "u=4"})
    assert (answer.headers["priority"], answer.headers["dpf-demoted"]) == ("u=7", "memory")
    assert own.runtime.limits.urgency == 7
    answer = httpx.post(f"{own.url}/v1/chat/completions", json=CHAT)
    assert "priority" not in answer.headers


def test_health_map__has_the_fingerprint(own: Any, table: Path) -> None:
    """As header and in the body; none where the server makes none."""
    with (
        Publisher(table) as publisher,
        Fingerprints(root=Root(table.parent), salts=DailySalt(table.parent / "s")) as found,
    ):
        Router(publisher).assign([Instance("gpu-0")])
        answer = httpx.get(f"{own.url}/v1/health-map")
        assert (answer.json()["fingerprint"], HEADER in answer.headers) == (None, False)
        made = found.make()
        own.server.config.app.state.fingerprints = found
        answer = httpx.get(f"{own.url}/v1/health-map")
        assert (answer.headers[HEADER], answer.json()["fingerprint"]["digest"]) == (made.header, made.digest)
        assert "devices" not in answer.json()["fingerprint"]  # what stays the same tomorrow stays in the car


def test_no_instance__is_503_with_the_health_map() -> None:
    """Trying again can help."""
    router = Router()
    router.assign([Instance("gpu-0", 0)])
    with pytest.raises(NoInstance) as caught:
        router.route("m", "u", 1)
    error = caught.value
    assert (error_status(error), error_headers(error)) == (503, {"retry-after": "1"})
    body = error_body(error)["error"]
    assert body["code"] == "no_instance"
    assert body["health"] == {"gpu-0": {"health": 1.0, "healthy": True, "weight": 0, "effective": 0}}
