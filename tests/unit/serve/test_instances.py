# SPDX-License-Identifier: Apache-2.0
"""The devices of a served package: which requests they admit, what is published of them, and when they change."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.backend.api import Device, Health
from dpfedge.errors import ConfigError, NoInstance
from dpfedge.routing.health import Rule
from dpfedge.routing.log import RouteLog
from dpfedge.routing.publication import Published, server_tables
from dpfedge.routing.replay import replay
from dpfedge.serve.instances import Instances
from dpfedge.stage.api import Mode

GOOD, BAD = Health(0.1, 0.9), Health(0.1, 0.9, faults=1)
ROUTES = {
    Mode.CHAT: ("llm",), Mode.SPEAK: ("voice",), Mode.TRANSCRIBE: ("decoder", "encoder"),
    Mode.CONVERSE: ("decoder", "encoder", "llm", "voice"),
}  # fmt: skip


class FakeBackend:
    """Devices whose health a test sets; a bad one fails anew at each look."""

    def __init__(self) -> None:
        self.now: dict[str, Health] = {}
        self.looks = 0

    def health(self, device: Device) -> Health:
        now = self.now.get(device.id, GOOD)
        self.looks += 1
        return replace(now, faults=now.faults * self.looks)


def placed(**stages: str) -> Any:
    """A pipeline on devices, the heaviest stage first; a mode it cannot do is an error, as a graph's."""

    def route(mode: Mode) -> tuple[str, ...]:
        if mode is Mode.RUN:
            raise ConfigError("this pipeline is no drawn graph")
        return ROUTES[mode]

    devices = {
        stage: Device(id, "fake", "gpu.nvidia", id, "sm_90", frozenset(), 1 << 30) for stage, id in stages.items()
    }
    return SimpleNamespace(name="toy", graph=SimpleNamespace(route=route), devices=lambda: devices)


def soon(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def health_of(instances: Instances, name: str) -> bool:
    return bool(instances.figures()["instances"][name]["healthy"])


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def instances(backend: FakeBackend) -> Iterator[Instances]:
    """The llm on a GPU, the rest on a CPU."""
    on = placed(llm="cuda:0", voice="cpu:0", encoder="cpu:0")
    one = Instances(on, {"fake": backend}, None, rule=Rule(up_hold_ms=0))
    yield one
    one.close()


def test_admit__by_the_devices_that_a_mode_needs(instances: Instances, backend: FakeBackend) -> None:
    """While the GPU is out nobody chats; who transcribes needs it not. It comes back."""
    assert [instances.admit(mode) for mode in ROUTES] == ["cuda:0", "cpu:0", "cpu:0", "cuda:0"]
    backend.now["cuda:0"] = BAD
    soon(lambda: not health_of(instances, "cuda:0"))
    with pytest.raises(NoInstance, match="instance cuda:0: no instance can serve the request") as caught:
        instances.admit(Mode.CHAT)
    assert caught.value.health["cuda:0"]["healthy"] is False
    with pytest.raises(NoInstance):
        instances.admit(Mode.CONVERSE)
    assert (instances.admit(Mode.TRANSCRIBE), instances.healthy) == ("cpu:0", False)
    assert (instances.figures()["refused"], instances.figures()["healthy"]) == (2, 1)
    assert instances.router.published.find(0)[0] is None  # it owns no table slot
    backend.now["cuda:0"] = GOOD
    soon(lambda: instances.healthy)
    assert instances.admit(Mode.CHAT) == "cuda:0"


@pytest.mark.parametrize("size", [120, 121, 128])
def test_admit__whatever_a_package_is_called(backend: FakeBackend, tmp_path: Path, size: int) -> None:
    """A name may have 128 bytes, an id of a key 120: a longer one's digest stands for it, in the log too."""
    one = placed(llm="cuda:0")
    one.name = "m" * size
    log = tmp_path / "log"
    instances = Instances(one, {"fake": backend}, None, log=RouteLog(log, ids=True))
    assert instances.admit(Mode.CHAT) == "cuda:0"
    instances.close()
    [model] = [row["decision"]["model"] for row in map(json.loads, log.read_text().splitlines()) if "decision" in row]
    assert (model == one.name) is (size == 120)
    assert replay(log).proved


def test_admit__when_what_helps_is_out(instances: Instances, backend: FakeBackend) -> None:
    """A device without table slots keeps those out who need it, and nobody else."""
    backend.now["cpu:0"] = BAD
    soon(lambda: not health_of(instances, "cpu:0"))
    with pytest.raises(NoInstance, match="instance cpu:0"):
        instances.admit(Mode.SPEAK)
    assert (instances.admit(Mode.CHAT), instances.healthy) == ("cuda:0", True)


def test_admit__of_what_the_pipeline_cannot_do(instances: Instances) -> None:
    """It is the runtime that says so."""
    assert instances.admit(Mode.RUN) is None


def test_follow__the_devices_of_another_package(instances: Instances, backend: FakeBackend) -> None:
    """Those that are gone count no more, nor does their health."""
    backend.now["cuda:0"] = BAD
    soon(lambda: not instances.healthy)
    instances.follow(placed(llm="cpu:0"), {"fake": backend})
    assert (instances.admit(Mode.CHAT), instances.healthy) == ("cpu:0", True)
    assert list(instances.figures()["instances"]) == ["cpu:0"]
    instances.follow(placed(), {"fake": backend})
    assert (instances.admit(Mode.CHAT), instances.healthy, instances.figures()["instances"]) == (None, True, {})


def test_table__is_published_and_taken_away(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process reads it; a server that was killed leaves one that nobody holds."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / "dpfedge/route/serve-8080.table"
    one = Instances(placed(llm="cuda:0", voice="cpu:0"), {"fake": backend}, path)
    table = Published.open(path)
    assert (server_tables(), one.figures()["table"]["path"]) == ([path], str(path))
    assert [entry.text for entry in table.entries().values()] == ["cuda:0", "cpu:0"]
    assert table.entry(0)[2].text == "cuda:0"
    second = Instances(placed(llm="cuda:0"), {"fake": backend}, path)
    assert second.path is None
    assert "another process publishes this table" in str(second.problem)
    second.close()
    assert path.exists()
    one.close()
    assert (server_tables(), list(path.parent.iterdir())) == ([], [])
    path.touch()
    path.with_name(f"{path.name}.lock").touch()
    assert server_tables() == []


def test_log__proves_each_decision(backend: FakeBackend, tmp_path: Path) -> None:
    """Also of a machine whose clock was lost."""
    with RouteLog(tmp_path / "log", ids=True) as log:
        one = Instances(placed(llm="cuda:0"), {"fake": backend}, None, log=log)
        for _ in range(3):
            one.admit(Mode.CHAT)
        one.close()
    proved = replay(tmp_path / "log")
    assert (proved.proved, proved.decisions) == (True, 3)


def test_admit__with_a_clock_from_before_1970(instances: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time is a number in a key, nothing else."""
    monkeypatch.setattr(time, "time_ns", lambda: -5)
    assert instances.admit(Mode.CHAT) == "cuda:0"


def test_admit__a_busy_device_with_little_memory_is_not_out(instances: Instances, backend: FakeBackend) -> None:
    """Nobody else could take the work; the health map tells of it."""
    backend.now["cuda:0"] = Health(1.0, 0.0)
    soon(lambda: instances.router.health_map()["cuda:0"]["health"] == 0)
    time.sleep(0.3)  # longer than what holds a score that is too low

    assert instances.admit(Mode.CHAT) == "cuda:0"


def test_follow__new_requests_find_devices_all_along(backend: FakeBackend) -> None:
    """Also between the packages, and while the old one's driver hangs: nobody is refused for the change itself."""
    hang = threading.Event()

    class Hangs(FakeBackend):
        def health(self, device: Device) -> Health:
            hang.wait(60)
            return GOOD

    instances = Instances(placed(llm="cuda:0", voice="cpu:0"), {"fake": Hangs()}, None)
    ended, refused = threading.Event(), list[str]()

    def ask() -> None:
        while not ended.is_set():
            try:
                instances.admit(Mode.CHAT)
            except NoInstance as error:
                refused.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    for turn in range(3):
        instances.follow(placed(llm=f"cuda:{turn + 1}", voice="cpu:0"), {"fake": backend})
    time.sleep(1.5)  # longer than a device may be silent
    ended.set()
    asking.join()
    assert not refused
    assert instances.figures()["instances"].keys() == {"cpu:0", "cuda:3"}
    hang.set()
    instances.close()


def test_admit__a_package_that_comes_while_its_devices_are_asked_about(
    instances: Instances, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request had read the old package's device, which has left by then: it is admitted to the new one's."""
    healthy = instances.router.healthy

    def late(name: str) -> bool:
        if name == "cuda:0":
            instances.follow(placed(llm="cuda:1"), {"fake": backend})
        return healthy(name)

    monkeypatch.setattr(instances.router, "healthy", late)
    assert instances.admit(Mode.CHAT) == "cuda:1"
    assert instances.refused == 0


def test_follow__after_the_end_does_nothing(instances: Instances, backend: FakeBackend) -> None:
    """A replacement that comes late begins no threads."""
    instances.close()
    instances.follow(placed(llm="cuda:7"), {"fake": backend})
    assert "cuda:7" not in instances.router.health_map()
    instances.close()


def test_instances__each_device_is_asked_through_its_own_backend() -> None:
    """Stages on two backends: one that is out takes only its own device away."""
    gpu, cpu = FakeBackend(), FakeBackend()
    on = placed(llm="cuda:0", voice="cpu:0")
    devices = on.devices()
    devices["voice"] = replace(devices["voice"], backend="cpu")
    one = Instances(on, {"fake": gpu, "cpu": cpu}, None, rule=Rule(up_hold_ms=0))
    try:
        gpu.now["cuda:0"] = BAD
        soon(lambda: not health_of(one, "cuda:0"))
        assert health_of(one, "cpu:0")
        assert one.admit(Mode.SPEAK) == "cpu:0"
    finally:
        one.close()
