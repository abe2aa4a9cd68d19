# SPDX-License-Identifier: Apache-2.0
"""The degrade ladder: a pipeline's `ladder` section and samples of pressure in, steps entered and left out.

    ladder:
      - name: warm
        when: {headroom: 10C, memory_free: 15%}   # any of them, for as long as `hold`
        until: {headroom: 18C, memory_free: 25%}  # all of them, each strictly milder, for as long as `hold`
        hold: 10s
        set: {llm: {sampling: {max_tokens: 96}}, encoder: {partials: false}}
      - name: saving
        when: {power_mode: [15W, 7W]}             # until it is none of these; it needs no `until`
        set: {llm: {model: small}}
        optional: true                            # a machine without the sensor does without this step

Conditions: `temperature` (at least), `headroom` (degrees left until the board throttles, at most), `memory_free` (at
most), `power_mode` (one of). Steps add up, in order, and are entered and left one at a time: one that is asked for is
reached through those before it, and `hold` counts from the last change, so that each step gets its time to help. A
value that no sensor tells neither enters nor leaves a step.

It reads no sensor and changes no stage: `pressure.py` and `degrading.py` do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from dpfedge.config import celsius, check, duration_ms, nearest, plain, share
from dpfedge.errors import ConfigError
from dpfedge.pipeline.ladder_schema import BOUNDS, SCHEMA
from dpfedge.records import dataclass

if TYPE_CHECKING:
    from dpfedge.pipeline.pressure import Pressure

__all__ = ["Change", "Condition", "Ladder", "Step", "merge"]

_HOLD_MS = 5000.0
_READ = {"temperature": celsius, "headroom": celsius, "memory_free": share}
_RISING = frozenset({"temperature"})
"""Values that are worse when they are higher; the others are worse when they are lower."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One value that is bad from `bad` on, and good again from `good` on; or a power mode among `modes`."""

    name: str
    bad: float = 0.0
    good: float = 0.0
    modes: tuple[str, ...] = ()

    def pressed(self, pressure: Pressure) -> bool:
        """Whether it is as bad as that; not when nobody knows."""
        value = _value(pressure, self.name)
        if value is None or self.modes:
            return value in self.modes
        return bool(value >= self.bad if self.name in _RISING else value <= self.bad)

    def relieved(self, pressure: Pressure) -> bool:
        """Whether it is good again; not when nobody knows."""
        value = _value(pressure, self.name)
        if value is None or self.modes:
            return value is not None and value not in self.modes
        return bool(value <= self.good if self.name in _RISING else value >= self.good)

    def reason(self, pressure: Pressure, *, entered: bool) -> str:
        """In words, with the figure and the bound."""
        value, rising = _value(pressure, self.name), self.name in _RISING
        if self.modes:
            return f"power mode {value} {'is' if entered else 'is not'} among {', '.join(self.modes)}"
        bound = self.bad if entered else self.good
        sign = "at least" if rising == entered else "at most"
        return f"{self.name.replace('_', ' ')} {_shown(self.name, value)}, {sign} {_shown(self.name, bound)}"


@dataclass(frozen=True, slots=True)
class Step:
    """One rung: any of its conditions enters it, all of them relieved leave it. `settings`: stage → what it sets."""

    name: str
    conditions: tuple[Condition, ...]
    hold_ns: int
    settings: Mapping[str, Mapping[str, Any]]
    optional: bool
    where: str

    def pressed(self, pressure: Pressure) -> bool:
        """Whether it is asked for."""
        return any(condition.pressed(pressure) for condition in self.conditions)

    def relieved(self, pressure: Pressure) -> bool:
        """Whether nothing asks for it any more."""
        return all(condition.relieved(pressure) for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class Change:
    """One step entered or left. `level`: how many steps are in force now; `settings`: stage → all that is set for it
    now by these together, {} for one that goes back to what the pipeline says; only the stages this step touches."""

    step: str
    entered: bool
    level: int
    reason: str
    pressure: Pressure
    settings: Mapping[str, Mapping[str, Any]]
    at_ns: int

    def record(self) -> dict[str, Any]:
        """The event, as plain data."""
        what = "step entered" if self.entered else "step left"
        return {
            "what": what, "at_ns": self.at_ns, "step": self.step, "level": self.level, "reason": self.reason,
            **self.pressure.figures(), "settings": {stage: dict(row) for stage, row in self.settings.items()},
        }  # fmt: skip


@dataclass(slots=True)
class Ladder:
    """Steps in order, and how many of them are in force. One thread calls `update`."""

    steps: Sequence[Step]
    level: int = 0
    _since: dict[tuple[int, bool], int] = field(default_factory=dict, init=False)
    _changed_ns: int = field(default=0, init=False)

    @classmethod
    def of(cls, section: Any, where: str) -> Ladder:
        """The checked section; ConfigError names file and line (or `where` and the step), and what to write instead."""
        check(section, SCHEMA, where)
        steps = [_step(data, index, where) for index, data in enumerate(section)]
        names = [step.name for step in steps]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ConfigError("two steps have the same name", where=steps[index].where, found=name)
        return cls(steps)

    @property
    def stages(self) -> Mapping[str, str]:
        """Stage → where the first step that sets something for it is written."""
        return {stage: step.where for step in reversed(self.steps) for stage in step.settings}

    def check_stages(self, names: Collection[str]) -> None:
        """ConfigError when a step sets something for a stage that is none of these."""
        for stage, where in self.stages.items():
            if stage not in names:
                allowed = ", ".join(names)
                raise ConfigError(
                    "the step sets a stage that there is not", where=where, found=stage, allowed=allowed,
                    remedy=nearest(stage, names),
                )  # fmt: skip

    def fitted(self, sensors: Collection[str], power_modes: Collection[str] = ()) -> tuple[Ladder, tuple[str, ...]]:
        """The ladder on a machine with these sensors, and why each optional step is left out there.

        A step needs every sensor it names, and one of the power modes it names where the machine lists its own;
        ConfigError names the first step that has not and is not `optional`.
        """
        kept, left_out = [], []
        for step in self.steps:
            lack = next((text for one in step.conditions if (text := _lack(one, sensors, power_modes))), None)
            if lack is None:
                kept.append(step)
            elif step.optional:
                left_out.append(f"{step.where}: step {step.name} is left out: {lack}")
            else:
                remedy = "remove the condition, or write optional: true to do without the step on such a machine"
                raise ConfigError(f"step {step.name}: {lack}", where=step.where, remedy=remedy)
        return replace(self, steps=kept), tuple(left_out)

    def update(self, pressure: Pressure, now_ns: int) -> tuple[Change, ...]:
        """What this sample changes: one step at most. `now_ns` is CLOCK_MONOTONIC."""
        for index, step in enumerate(self.steps):
            for entering, holds in ((True, step.pressed(pressure)), (False, step.relieved(pressure))):
                if holds:
                    self._since.setdefault((index, entering), now_ns)
                else:
                    self._since.pop((index, entering), None)
        asking = [index for index in range(self.level, len(self.steps)) if (index, True) in self._since]
        if any(self._held(index, True, now_ns) for index in asking):
            index = next(index for index in asking if self._held(index, True, now_ns))
            return (self._change(self.level, True, self.steps[index], pressure, now_ns),)
        if self.level and not asking and self._held(self.level - 1, False, now_ns):
            return (self._change(self.level - 1, False, self.steps[self.level - 1], pressure, now_ns),)
        return ()

    def settings(self, stage: str) -> Mapping[str, Any]:
        """All that the steps in force set for a stage, maps inside put together, later steps winning."""
        merged: dict[str, Any] = {}
        for step in self.steps[: self.level]:
            merged = merge(merged, step.settings.get(stage, {}))
        return merged

    def touched(self, stage: str) -> frozenset[str]:
        """Every key that any step, in force or not, sets for a stage."""
        return frozenset(key for step in self.steps for key in step.settings.get(stage, {}))

    def _held(self, index: int, entering: bool, now_ns: int) -> bool:
        since = self._since.get((index, entering))
        return since is not None and now_ns - max(since, self._changed_ns) >= self.steps[index].hold_ns

    def _change(self, index: int, entered: bool, asking: Step, pressure: Pressure, now_ns: int) -> Change:
        self.level, self._changed_ns = index + entered, now_ns
        step = self.steps[index]
        told = [one for one in asking.conditions if not entered or one.pressed(pressure)]
        reason = "; ".join(condition.reason(pressure, entered=entered) for condition in told)
        if asking is not step:
            reason = f"on the way to {asking.name}: {reason}"
        settings = {stage: self.settings(stage) for stage in step.settings}
        return Change(step.name, entered, self.level, reason, pressure, settings, now_ns)


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both maps as one; of two values the one in `over`, of two maps inside both again."""
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _step(data: Mapping[str, Any], index: int, where: str) -> Step:
    # plain data, of a package, has no lines
    place = data.where() if hasattr(data, "where") else f"{where}: ladder[{index}]"
    name = data.get("name", str(index + 1))
    until = dict(data.get("until", {}))
    conditions = tuple(_condition(key, value, until, name, place) for key, value in data["when"].items())
    if until:
        allowed = ", ".join(key for key in data["when"] if key in BOUNDS) or "nothing"
        raise ConfigError(
            f"step {name}: `until` has what `when` has not", where=place, found=min(until), allowed=allowed
        )
    hold_ns = round((duration_ms(data["hold"]) if "hold" in data else _HOLD_MS) * 1e6)
    return Step(name, conditions, hold_ns, plain(data["set"]), data.get("optional", False), place)


def _condition(key: str, value: Any, until: dict[str, Any], step: str, place: str) -> Condition:
    if key == "power_mode":
        return Condition(key, modes=tuple(value))
    if key not in until:
        milder = "lower" if key in _RISING else "higher"
        raise ConfigError(
            f"step {step}: `until` has no {key}", where=place, remedy=f"add one that is {milder} than {value}, so that "
            "the step is not entered and left all the time",
        )  # fmt: skip
    good_text = until.pop(key)
    bad, good = _READ[key](value), _READ[key](good_text)
    if good >= bad if key in _RISING else good <= bad:
        found = f"{key} until {good_text}, when {value}"
        allowed = f"{key} {'below' if key in _RISING else 'above'} {value} in `until`"
        raise ConfigError(f"step {step}: `until` is not milder than `when`", where=place, found=found, allowed=allowed)
    return Condition(key, bad, good)


def _lack(condition: Condition, sensors: Collection[str], power_modes: Collection[str]) -> str | None:
    if condition.name not in sensors:
        return f"this machine tells no {condition.name.replace('_', ' ')}"
    if condition.modes and power_modes and not set(condition.modes) & set(power_modes):
        return f"this machine has none of its power modes, but {', '.join(power_modes)}"
    return None


def _value(pressure: Pressure, name: str) -> Any:
    return getattr(pressure, f"{name}_c" if name in ("temperature", "headroom") else name)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "unknown"
    return f"{value * 100:.1f} %" if name == "memory_free" else f"{value:.1f} °C"
