# SPDX-License-Identifier: Apache-2.0
"""The ladder: how it is written, when its steps are entered and left, and what they set together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedge.config import load_yaml
from dpfedge.errors import ConfigError
from dpfedge.pipeline.ladder import Change, Ladder, merge
from dpfedge.pipeline.pressure import Pressure

S = 10**9
HEAT: list[dict[str, Any]] = [
    {
        "name": "warm", "when": {"temperature": "80C"}, "until": {"temperature": "70C"}, "hold": "10s",
        "set": {"llm": {"sampling": {"max_tokens": 96, "top_p": 0.9}}, "encoder": {"partials": False}},
    },
    {
        "name": "hot", "when": {"temperature": "90C"}, "until": {"temperature": "84C"}, "hold": "4s",
        "set": {"llm": {"sampling": {"max_tokens": 32}, "model": "small"}},
    },
]  # fmt: skip
MIXED: list[dict[str, Any]] = [
    {**HEAT[0]},
    {"when": {"memory_free": "10%"}, "until": {"memory_free": "20%"}, "hold": "2s", "set": {"llm": {"model": "small"}}},
    {"when": {"power_mode": ["15W", "7W"]}, "hold": "0s", "optional": True, "set": {"encoder": {"partial_ms": 2000}}},
]


def ladder(section: Any = None) -> Ladder:
    """From plain data, as a package holds it."""
    return Ladder.of(HEAT if section is None else section, "voice.dpfbin")


def heat(ladder: Ladder, *samples: tuple[float, float]) -> list[str]:
    """Samples of (seconds, °C): what each changes, as `+step` or `-step`."""
    found = []
    for seconds, celsius in samples:
        found += [sign(change) for change in ladder.update(Pressure(temperature_c=celsius), round(seconds * S))]
    return found


def sign(change: Change) -> str:
    """One change in short."""
    return f"{'+' if change.entered else '-'}{change.step}"


# --- entering and leaving ---


def test_step__is_entered_when_its_condition_lasted() -> None:
    """A peak shorter than `hold` changes nothing; the clock starts anew after it."""
    one = ladder()

    assert heat(one, (0, 85), (9, 85), (9.5, 75), (10, 85), (19.9, 85)) == []
    assert heat(one, (20, 85)) == ["+warm"]
    assert one.level == 1


def test_step__is_left_when_it_was_milder_for_long_enough() -> None:
    """Between `when` and `until` nothing changes: that is the hysteresis."""
    one = ladder()
    heat(one, (0, 85), (10, 85))

    assert heat(one, (11, 75), (60, 71), (61, 70), (70, 70)) == []
    assert heat(one, (71, 70)) == ["-warm"]
    assert one.level == 0


def test_steps__come_one_at_a_time_and_get_time_to_help() -> None:
    """Very hot from the start: the first step, then after the second's own hold the second; back in reverse order."""
    one = ladder()

    assert heat(one, (0, 95), (3.9, 95)) == []
    assert heat(one, (4, 95), (5, 95), (7.9, 95)) == ["+warm"]
    assert heat(one, (8, 95)) == ["+hot"]
    assert heat(one, (9, 60), (12.9, 60)) == []
    assert heat(one, (13, 60), (14, 60), (22.9, 60)) == ["-hot"]
    assert heat(one, (23, 60)) == ["-warm"]


def test_step__asked_for_behind_others_is_reached_through_them() -> None:
    """Memory is short in the cold: the heat step comes first because the steps add up, and goes when memory is back."""
    one = ladder(MIXED)
    low, fine = Pressure(40.0, 0.05), Pressure(40.0, 0.5)

    def play(pressure: Pressure, *seconds: float) -> list[Change]:
        return [change for at in seconds for change in one.update(pressure, round(at * S))]

    first, second = play(low, 0, 2, 3, 4)
    assert (sign(first), first.reason) == ("+warm", "on the way to 2: memory free 5.0 %, at most 10.0 %")
    assert (sign(second), second.reason) == ("+2", "memory free 5.0 %, at most 10.0 %")
    assert [sign(change) for change in play(fine, 5, 7, 8, 16, 17)] == ["-2", "-warm"]


def test_step__stays_while_a_later_one_is_asked_for() -> None:
    """Cool enough to leave, but memory runs short: nothing is given back before that is decided."""
    one = ladder([{**HEAT[0], "hold": "0s"}, {**MIXED[1], "hold": "60s"}])
    one.update(Pressure(85.0, 0.5), 0)

    assert one.update(Pressure(60.0, 0.05), 1 * S) == ()
    assert [sign(change) for change in one.update(Pressure(60.0, 0.15), 2 * S)] == ["-warm"]


def test_unknown__neither_enters_nor_leaves() -> None:
    """A sensor that falls silent leaves things as they are."""
    one = ladder()
    nobody = Pressure()

    assert heat(one, (0, 85), (10, 85)) == ["+warm"]
    assert [change for at in range(11, 99) for change in one.update(nobody, at * S)] == []
    assert one.level == 1


def test_power_mode__counts_while_it_is_one_of_those() -> None:
    """It needs no `until`."""
    one = ladder([MIXED[2]])

    [entered] = one.update(Pressure(power_mode="7W"), 0)
    assert (entered.settings, entered.reason) == (
        {"encoder": {"partial_ms": 2000}}, "power mode 7W is among 15W, 7W",
    )  # fmt: skip
    assert one.update(Pressure(power_mode="15W"), 1 * S) == ()
    assert one.update(Pressure(), 2 * S) == ()
    [left] = one.update(Pressure(power_mode="MAXN"), 3 * S)
    assert (sign(left), left.settings, left.reason) == (
        "-1", {"encoder": {}}, "power mode MAXN is not among 15W, 7W",
    )  # fmt: skip


def test_headroom__is_worse_when_it_is_less() -> None:
    """Degrees left until the board throttles."""
    one = ladder([{"when": {"headroom": "5C"}, "until": {"headroom": "9C"}, "hold": "0s", "set": {"llm": {"a": 1}}}])

    assert one.update(Pressure(headroom_c=6.0), 0) == ()
    [entered] = one.update(Pressure(headroom_c=-1.0), 1 * S)
    assert entered.reason == "headroom -1.0 °C, at most 5.0 °C"
    assert one.update(Pressure(headroom_c=8.0), 2 * S) == ()
    [left] = one.update(Pressure(headroom_c=9.0), 3 * S)
    assert left.reason == "headroom 9.0 °C, at least 9.0 °C"


# --- what they set ---


def test_settings__add_up_and_go_back() -> None:
    """A change names all that is in force for the stages its step touches, and the figures."""
    one = ladder()
    warm = {"max_tokens": 96, "top_p": 0.9}

    [first] = [change for at in (0, 10) for change in one.update(Pressure(91.0), at * S) if at][:1]
    assert first.settings == {"llm": {"sampling": warm}, "encoder": {"partials": False}}
    [second] = one.update(Pressure(91.0), 14 * S)
    assert second.settings == {"llm": {"sampling": {"max_tokens": 32, "top_p": 0.9}, "model": "small"}}
    [third] = [change for at in (15, 19) for change in one.update(Pressure(60.0, zone="gpu"), at * S)]
    assert third.settings == {"llm": {"sampling": warm}}
    assert third.record() == {
        "what": "step left", "at_ns": 19 * S, "step": "hot", "level": 1,
        "reason": "temperature 60.0 °C, at most 84.0 °C", "temperature_c": 60.0, "headroom_c": None, "zone": "gpu",
        "memory_free": None, "power_mode": None, "settings": {"llm": {"sampling": warm}},
    }  # fmt: skip


def test_merge__of_maps_inside() -> None:
    """The later value wins; neither map is changed."""
    under = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge(under, {"a": {"b": 5}, "d": {"e": 1}}) == {"a": {"b": 5, "c": 2}, "d": {"e": 1}}
    assert under == {"a": {"b": 1, "c": 2}, "d": 3}


@given(
    st.lists(st.tuples(st.sampled_from([0.5, 1, 3, 12]), st.sampled_from([None, 60, 69, 75, 83, 87, 95])), max_size=60)
)
def test_any_weather__moves_by_one_and_never_flutters(weather: list[tuple[float, float | None]]) -> None:
    """Levels change by one, no sooner than the shortest hold after the last change, and settle in steady weather."""
    one, now, last = ladder(), 0.0, 0.0
    for pause, celsius in weather:
        now += pause
        before = one.level
        changes = one.update(Pressure(celsius), round(now * S))
        assert abs(one.level - before) == len(changes) <= 1
        if changes:
            assert now - last >= 4
            last = now
    for _ in range(60):
        now += 1
        one.update(Pressure(60.0), round(now * S))
    assert (one.level, one.settings("llm")) == (0, {})


# --- on a machine ---


def test_fitted__a_machine_without_the_sensor() -> None:
    """A step that cannot do without is refused by name; an optional one is left out and named."""
    with pytest.raises(
        ConfigError, match=r"voice.dpfbin: ladder\[1\]: step 2: this machine tells no memory free; .*optional: true"
    ):
        ladder(MIXED).fitted({"temperature"})

    fitted, left_out = ladder(MIXED).fitted({"temperature", "memory_free"})
    assert [step.name for step in fitted.steps] == ["warm", "2"]
    assert left_out == ("voice.dpfbin: ladder[2]: step 3 is left out: this machine tells no power mode",)


def test_fitted__a_machine_with_other_power_modes() -> None:
    """One of the modes must be there, so that a list may serve several boards."""
    sensors = {"temperature", "memory_free", "power_mode"}

    assert len(ladder(MIXED).fitted(sensors, ("MAXN", "15W"))[0].steps) == 3
    assert len(ladder(MIXED).fitted(sensors)[0].steps) == 3
    fitted, [line] = ladder(MIXED).fitted(sensors, ("MAXN", "50W"))
    assert len(fitted.steps) == 2
    assert "this machine has none of its power modes, but MAXN, 50W" in line


def test_stages__must_be_in_the_pipeline() -> None:
    """The nearest one is named."""
    ladder().check_stages(("llm", "encoder", "voice"))
    with pytest.raises(ConfigError, match=r"sets a stage that there is not; found encoder; .*did you mean decoder\?"):
        ladder().check_stages(("llm", "decoder"))


# --- as it is written down ---

FINE = "when: {temperature: 80C}, until: {temperature: 70C}, set: {llm: {a: 1}}"


def written(tmp_path: Path, *steps: str) -> Ladder:
    """Steps in a file, one a line, from line 2 on."""
    path = tmp_path / "car.yaml"
    path.write_text("ladder:\n" + "".join(f"  - {{{step}}}\n" for step in steps))
    return Ladder.of(load_yaml(path)["ladder"], "car.yaml")


def test_ladder__is_read(tmp_path: Path) -> None:
    """A step without a name has its number; `hold` has a default."""
    [first, second] = written(tmp_path, FINE, f"name: hot, hold: 1min, {FINE}").steps
    assert (first.name, first.hold_ns, second.name, second.hold_ns) == ("1", 5 * S, "hot", 60 * S)
    assert first.where.endswith("car.yaml:2")


SET = "set: {llm: {a: 1}}"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (f"when: {{temperature: 80C}}, until: {{temperature: 80C}}, {SET}",
         r"car.yaml:3: step 2: `until` is not milder than `when`; found temperature until 80C, when 80C; "
         r"allowed temperature below 80C in `until`"),
        (f"when: {{memory_free: 20%}}, until: {{memory_free: 15%}}, {SET}", "allowed memory_free above 20%"),
        (f"when: {{temperature: 80C}}, {SET}", r"car.yaml:3: step 2: `until` has no temperature; add one that is"),
        (f"when: {{power_mode: [7W]}}, until: {{headroom: 5C}}, {SET}",
         "`until` has what `when` has not; found headroom; allowed nothing"),
        (f"when: {{temprature: 80C}}, {SET}", r"car.yaml:3: unknown key 'temprature'.*did you mean temperature\?"),
        (f"when: {{temperature: 80}}, until: {{temperature: 70C}}, {SET}", "unit is missing; found 80; allowed C"),
        (f"when: {{memory_free: 0.1}}, until: {{memory_free: 20%}}, {SET}", "the unit is missing"),
        (f"when: {{}}, {SET}", "when: out of range; found 0 entries"),
        (f"when: {{power_mode: 7W}}, {SET}", "power_mode: wrong type; found string '7W'; allowed array"),
        ("when: {power_mode: [7W]}, set: {}", "set: out of range"),
        ("when: {power_mode: [7W]}, set: {llm: {model: 7}}", "set.llm.model: wrong type"),
        (f"when: {{power_mode: [7W]}}, hold: soon, {SET}", "hold: a number with a unit is needed"),
        (f"name: first, {FINE}", "car.yaml:3: two steps have the same name; found first"),
        ("when: {power_mode: [7W]}", "key 'set' is missing"),
    ],
)  # fmt: skip
def test_ladder__mistakes_are_named(tmp_path: Path, step: str, words: str) -> None:
    """File and line, what was found and what to write."""
    with pytest.raises(ConfigError, match=words):
        written(tmp_path, f"name: first, {FINE}", step)
