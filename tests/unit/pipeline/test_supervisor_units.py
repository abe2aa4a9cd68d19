# SPDX-License-Identifier: Apache-2.0
"""Processes of one stage and of several: late ones, broken ones, replaced ones, and what is told of them."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from made_supervisor import NAMES, Make, crashes, deaf, hangs, refuses, says_ready, unless_small

from dpfedge.errors import StageError, UsageError
from dpfedge.pipeline import unit as module
from dpfedge.pipeline.wire import send_message

pytestmark = pytest.mark.usefixtures("nothing_left")
SHARED = {name: {"isolation": "thread"} for name in NAMES}


# --- several stages in one process ---


def test_shared_process__serves_every_stage_of_it(make: Make) -> None:
    """One pid, an owner on the links for each, and one death for all."""
    pipeline = make(placement=SHARED)
    pipeline.one.wait_ready()
    states = pipeline.one.stages
    assert states["decoder"].pid == states["llm"].pid
    assert states["decoder"].owner != states["llm"].owner
    assert {state.unit for state in states.values()} == {"decoder"}

    pipeline.kill("llm")
    for name in NAMES:
        pipeline.watch.wait("ready", name, 2)
    assert [state.restarts for state in states.values()] == [1, 1]
    assert pipeline.watch.told.count(("died", "decoder")) == pipeline.watch.told.count(("died", "llm")) == 1


def test_shared_process__gives_back_what_each_stage_held(make: Make, rig: Any) -> None:
    """Before anybody hears of the death."""
    pipeline = make(placement=SHARED)
    pipeline.one.wait_ready()
    loans = [rig.arena.producer(f"{name}.sink", state.owner).loan(8) for name, state in pipeline.one.stages.items()]
    assert rig.held() == {"decoder.sink": 1, "llm.sink": 1}
    pipeline.kill("decoder")
    pipeline.watch.wait("died", "decoder", 1)

    assert rig.held() == {}
    del loans


def test_shared_process__that_cannot_start_names_the_stage_that_is_why(make: Make) -> None:
    """The stages that only share the process fail with its error."""
    pipeline = make({"llm": refuses}, placement=SHARED)

    with pytest.raises(StageError, match="stage llm: bad model; found x; fix it"):
        pipeline.one.wait_ready()
    assert pipeline.state("decoder") == "failed"


# --- late and broken ones ---


@pytest.mark.parametrize("placement", [{}, SHARED])
def test_stage__never_ready_is_killed_and_named(make: Make, placement: Any) -> None:
    """Within the time the pipeline gives it; the wait ends with that."""
    pipeline = make({"llm": hangs}, placement=placement, start_max_s=0.3)

    with pytest.raises(StageError, match=r"stage llm: it was not ready after 0\.3 s and was killed; .*budgets\.start"):
        pipeline.one.wait_ready()
    pipeline.watch.wait("died", "llm", 1)
    assert pipeline.watch.event("late", "llm") == {"after_s": 0.3}
    assert pipeline.state() == "failed"


def test_stage__never_ready_after_a_death_is_tried_again(make: Make, tmp_path: Any) -> None:
    """As after any other death, and the others serve meanwhile."""
    mark = tmp_path / "once"

    def second_hangs(channel: Any, row: Any) -> None:
        starts = len(mark.read_text()) if mark.exists() else 0
        mark.write_text("x" * (starts + 1))
        (hangs if starts == 1 else says_ready)(channel, row)

    pipeline = make({"llm": second_hangs}, start_max_s=0.3)
    pipeline.one.wait_ready()
    pipeline.kill("llm")
    pipeline.watch.event("late", "llm")
    pipeline.watch.wait("ready", "llm", 2)

    assert pipeline.one.stages["llm"].restarts == 2
    assert pipeline.watch.told.count(("died", "decoder")) == 0


def test_process__nobody_forks_is_not_waited_for_for_ever(make: Make) -> None:
    """A zygote that takes commands and says nothing is ended."""
    pipeline = make({"forks nothing": hangs}, start_max_s=0.3)

    with pytest.raises(StageError, match=r"it was not ready after 0\.3 s and was killed"):
        pipeline.one.wait_ready()


def test_circuit_breaker__opens_for_one_stage_while_the_others_go_on(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that dies at each restart is down, which is told; the other process is the same as before."""
    monkeypatch.setattr(module, "STAGE_RESTARTS_MAX", 3)
    monkeypatch.setattr(module, "STAGE_RESTARTS_WINDOW_S", 60)

    def dies_again(channel: Any, row: Any) -> None:
        (crashes if row["owner"] > len(NAMES) else says_ready)(channel, row)

    pipeline = make({"llm": dies_again})
    pipeline.one.wait_ready()
    other = pipeline.one.stages["decoder"].pid
    pipeline.kill("llm")
    told = pipeline.watch.event("down", "llm")

    assert 0 < told["retry_s"] <= 60
    assert pipeline.state() == "failed"
    assert (pipeline.state("decoder"), pipeline.one.stages["decoder"].pid) == ("ready", other)


def test_restart__is_told_with_what_it_took(make: Make) -> None:
    """From the death to being ready."""
    pipeline = make()
    pipeline.one.wait_ready()
    pipeline.kill("llm")
    told = pipeline.watch.event("restarted", "llm")

    assert told["restarts"] == 1
    assert told["after_ms"] > 0


def test_restart__without_a_descriptor_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A death like any other: back-off, the reason kept, and the next try."""
    pipeline = make()
    pipeline.one.wait_ready()
    pair, tries = socket.socketpair, []

    def sometimes(*arguments: Any) -> Any:
        tries.append(pipeline.one.stages["llm"].error)
        if len(tries) < 3:
            raise OSError(24, "Too many open files")
        return pair(*arguments)

    monkeypatch.setattr(socket, "socketpair", sometimes)
    pipeline.kill("llm")
    pipeline.watch.wait("ready", "llm", 2)

    assert len(tries) == 3
    assert pipeline.one.stages["llm"].restarts == 3


@pytest.mark.parametrize("placement", [{}, SHARED])
def test_stage__ready_before_its_process_is_known(make: Make, placement: Any) -> None:
    """What it said waits until the zygote has told who it is; so does its death."""
    pipeline = make({"tells late": hangs}, placement=placement)
    pipeline.one.wait_ready()
    pipeline.kill("llm")
    pipeline.watch.wait("ready", "llm", 2)

    assert pipeline.one.stages["llm"].facts["pid"] == pipeline.one.stages["llm"].pid


# --- what stages tell ---


def test_event__of_a_stage_is_passed_on(make: Make) -> None:
    """With the stage's name and the time."""

    def talks(channel: Any, row: Any) -> None:
        says_ready(channel, row)
        send_message(channel, {"event": {"what": "over budget", "step_ms": 7.0}, "stage": row["stage"]["name"]})

    pipeline = make({"llm": talks})
    assert pipeline.watch.event("over budget", "llm") == {"step_ms": 7.0}
    assert pipeline.watch.events[0][1]["at_ns"] <= time.monotonic_ns()


def test_priority__that_was_refused_is_told_and_kept(make: Make) -> None:
    """In the stage's state, for who asks later, and as an event."""
    pipeline = make({"llm": lambda channel, row: says_ready(channel, row, refused=["fifo 50 needs CAP_SYS_NICE"])})

    assert pipeline.watch.event("refused", "llm") == {"asked": "fifo 50 needs CAP_SYS_NICE"}
    assert pipeline.one.stages["llm"].refused == ("fifo 50 needs CAP_SYS_NICE",)


def test_watcher__without_a_word_for_events_hears_none(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watchers that only know life and death work as before."""
    from made_supervisor import Watch

    monkeypatch.delattr(Watch, "stage_event")
    pipeline = make()
    pipeline.one.wait_ready()
    pipeline.kill("llm")
    pipeline.watch.wait("ready", "llm", 2)
    assert pipeline.watch.events == []


# --- replacing ---


def test_replace__settings_alone_wait_for_the_next_start(make: Make) -> None:
    """They are kept over every death."""
    pipeline = make()
    pipeline.one.wait_ready()
    pid = pipeline.one.stages["llm"].pid
    pipeline.one.replace("llm", settings={"rate": 5})
    for count in (2, 3):
        assert (pipeline.one.stages["llm"].pid == pid) is (count == 2)
        pipeline.kill("llm")
        pipeline.watch.wait("ready", "llm", count)
        assert pipeline.one.stages["llm"].facts["settings"] == {"rate": 5}


def test_replace__model_starts_the_stage_anew(make: Make) -> None:
    """It is no death that counts; after a later death the new model is the stage's own."""
    pipeline = make()
    pipeline.one.wait_ready()
    state = pipeline.one.stages["llm"]
    pipeline.one.replace("llm", model="small", settings={"rate": 5})
    told = pipeline.watch.event("replaced", "llm")

    assert told == {"model": "small", "before": "m", "settings": {"rate": 5}}
    assert (state.facts["model"], state.restarts) == ("small", 0)
    assert pipeline.watch.told.count(("died", "llm")) == 1
    pipeline.kill("llm")
    pipeline.watch.wait("ready", "llm", 3)
    assert (state.facts["model"], state.restarts) == ("small", 1)
    assert [event["what"] for _, event in pipeline.watch.events] == ["replaced", "restarted"]


def test_replace__waits_until_nobody_uses_the_stage(make: Make) -> None:
    """Nor another one in its process."""
    pipeline = make(placement=SHARED)
    pipeline.one.wait_ready()
    pid = pipeline.one.stages["llm"].pid
    pipeline.busy.add("decoder")
    pipeline.one.replace("llm", model="small")
    time.sleep(0.1)
    assert (pipeline.one.stages["llm"].pid, pipeline.state()) == (pid, "ready")

    pipeline.busy.clear()
    pipeline.watch.event("replaced", "llm")
    assert pipeline.one.stages["decoder"].facts["model"] is None


def test_replace__of_a_stage_that_does_not_listen(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed after the grace."""
    from dpfedge.pipeline import supervisor_units

    monkeypatch.setattr(supervisor_units, "_END_GRACE_S", 0.1)
    pipeline = make({"llm": deaf})
    pipeline.one.wait_ready()
    pipeline.one.replace("llm", model="small")

    assert pipeline.watch.event("replaced", "llm")["model"] == "small"


@pytest.mark.parametrize(
    ("life", "what"), [(refuses, "bad model"), (crashes, "the process"), (hangs, "not ready after")]
)
def test_replace__that_fails_goes_back(make: Make, life: Any, what: str) -> None:
    """The model before serves again; what went wrong is told; nothing counts as a death."""
    pipeline = make({"llm": unless_small(life)}, start_max_s=0.5)
    pipeline.one.wait_ready()
    state = pipeline.one.stages["llm"]
    pipeline.one.replace("llm", model="small")
    told = pipeline.watch.event("replace failed", "llm")
    pipeline.watch.wait("ready", "llm", 2)

    assert told["model"] == "small"
    assert what in told["error"]["what"]
    assert (state.facts["model"], state.restarts, state.state) == (None, 0, "ready")
    time.sleep(0.05)
    assert pipeline.watch.told.count(("ready", "llm")) == 2


def test_replace__of_settings_that_keep_the_stage_from_starting(make: Make) -> None:
    """After a death they are tried, fail, and the settings before are back."""

    def picky(channel: Any, row: Any) -> None:
        (refuses if row["settings"] else says_ready)(channel, row)

    pipeline = make({"llm": picky})
    pipeline.one.wait_ready()
    pipeline.one.replace("llm", settings={"rate": -1})
    pipeline.kill("llm")
    assert pipeline.watch.event("replace failed", "llm")["settings"] == {"rate": -1}

    pipeline.watch.wait("ready", "llm", 2)
    assert pipeline.one.stages["llm"].facts["settings"] == {}


def test_replace__twice_runs_the_last(make: Make) -> None:
    """Also when the first is not ready yet; None leaves what was asked for before."""
    pipeline = make()
    pipeline.one.wait_ready()
    for model in ("small", "smaller", None):
        pipeline.one.replace("llm", model=model)
    deadline = time.monotonic() + 30
    while pipeline.one.stages["llm"].facts["model"] != "smaller":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_replace__back_to_the_pipelines_own_model(make: Make) -> None:
    """By its name."""
    pipeline = make()
    pipeline.one.wait_ready()
    pipeline.one.replace("llm", model="small")
    pipeline.watch.event("replaced", "llm")
    pipeline.one.replace("llm", model="m")

    assert pipeline.watch.event("replaced", "llm", 2) == {"model": "m", "before": "small", "settings": {}}


def test_replace__of_a_stage_that_is_down_is_what_it_is_tried_with_next(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller model may be what it needs."""
    monkeypatch.setattr(module, "BACK_OFF_S", (0.5,))
    pipeline = make()
    pipeline.one.wait_ready()
    pipeline.kill("llm")
    pipeline.watch.wait("died", "llm", 1)
    pipeline.one.replace("llm", model="small")

    assert pipeline.watch.event("replaced", "llm")["model"] == "small"


def test_replace__of_nobody(make: Make) -> None:
    """It names the stages there are."""
    with pytest.raises(UsageError, match="no such stage; found nobody; allowed decoder, llm"):
        make().one.replace("nobody", model="x")


def test_stop__while_a_replacement_waits(make: Make) -> None:
    """Nothing is left behind, and nothing is started."""
    pipeline = make()
    pipeline.one.wait_ready()
    pipeline.busy.add("llm")
    pipeline.one.replace("llm", model="small")
    pipeline.one.stop()

    assert pipeline.watch.events == []
