# SPDX-License-Identifier: Apache-2.0
"""`/v1/health-map` of a real server, and what a client is told when no instance is healthy."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from dpfedge.errors import NoInstance
from dpfedge.routing import Instance, Publisher, Router, Sample
from dpfedge.serve.errors import error_body, error_headers, error_status


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
