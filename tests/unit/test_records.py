# SPDX-License-Identifier: Apache-2.0
"""`dpfedge.records.dataclass` beside the standard library's: every class below is made by both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, astuple, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from dpfedge import records

Decorator = Callable[..., Callable[[type], Any]]
BOTH = pytest.mark.parametrize("decorator", [records.dataclass, dataclasses.dataclass], ids=["ours", "standard"])


@records.dataclass(frozen=True, slots=True)
class Point:
    """At the top of a module, where pickle finds it."""

    x: int
    names: tuple[str, ...] = ()


@records.dataclass(slots=True)
class Open:
    """May be changed."""

    value: int
    seen: list[int] = field(default_factory=list)


def _point(decorator: Decorator) -> Any:
    class P:
        x: int
        y: int = 2
        kind: ClassVar[str] = "point"
        seen: list[int] = field(default_factory=list, compare=False, repr=False)

        def total(self) -> int:
            return self.x + self.y

    return decorator(frozen=True, slots=True)(P)


@BOTH
def test_dataclass__is_made_of_positions_names_and_defaults(decorator: Decorator) -> None:
    """As its fields say, a new default for each instance where there is a factory."""
    made = _point(decorator)
    one, other = made(1), made(x=1, y=2, seen=[7])
    assert (one.x, one.y, one.seen, one.total(), made.kind) == (1, 2, [], 3, "point")
    assert one.seen is not made(1).seen
    assert one == other
    assert hash(one) == hash(other)
    assert one != made(2)
    assert one != (1, 2)
    assert repr(one).endswith("P(x=1, y=2)")
    assert made.__match_args__ == ("x", "y", "seen")
    assert not hasattr(one, "__dict__")
    assert [*inspect.signature(made).parameters] == ["x", "y", "seen"]


@BOTH
@pytest.mark.parametrize(("given", "named", "message"), [
    ((), {}, "missing 1 required positional argument: 'x'"), ((1, 2, [], 4), {}, "takes from 2 to 4 positional"),
    ((1,), {"z": 3}, "unexpected keyword argument 'z'"), ((1,), {"x": 3}, "multiple values for argument 'x'"),
])  # fmt: skip
def test_dataclass__refuses_what_it_has_no_field_for(
    decorator: Decorator, given: Any, named: Any, message: str
) -> None:
    """Before and after the first instance, in the words of Python, with the class's name."""
    made = _point(decorator)
    for _ in range(2):
        with pytest.raises(TypeError, match=rf"P\.__init__\(\) .*{message}"):
            made(*given, **named)
        made(1)


@BOTH
def test_dataclass__frozen(decorator: Decorator) -> None:
    """No field is set or deleted, nothing added; `replace` makes another one."""
    one = _point(decorator)(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 3
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'y'"):
        del one.y
    with pytest.raises((FrozenInstanceError, TypeError)):  # Python 3.11's own says something else here
        one.other = 3
    assert replace(one, y=5).total() == 6
    assert (asdict(one), astuple(one)) == ({"x": 1, "y": 2, "seen": []}, (1, 2, []))
    assert [each.name for each in fields(one)] == ["x", "y", "seen"]
    assert is_dataclass(one)


@BOTH
def test_dataclass__not_frozen(decorator: Decorator) -> None:
    """Fields may be set, others not be added; it has no hash; with eq=False it is equal to itself only."""

    class P:
        x: int = 0
        late: int = field(init=False)
        counted: int = field(default=4, init=False)

    class Single:
        x: int

    made, single = decorator(slots=True)(P), decorator(slots=True, eq=False)(Single)
    one = made()
    one.x = 3
    assert one.counted == 4
    assert not hasattr(one, "late")
    with pytest.raises(AttributeError):
        one.other = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    assert single(1) != single(1)
    assert hash(single(1))


@BOTH
def test_dataclass__own_methods_stay(decorator: Decorator) -> None:
    """What the class defines itself is not replaced, and `__post_init__` runs at the end."""

    class P:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("below zero")

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    made = decorator(frozen=True, slots=True)(P)
    assert repr(made(1)) == "mine"
    assert made(1) == made(2)
    assert hash(made(1)) != hash(made(2))
    with pytest.raises(ValueError, match="below zero"):
        made(-1)


@BOTH
@pytest.mark.parametrize("base", [records.dataclass, dataclasses.dataclass], ids=["of ours", "of the standard's"])
def test_dataclass__inherits(decorator: Decorator, base: Decorator) -> None:
    """Fields of the base come first, each has one slot, and both are made by their own `__init__`."""

    class A:
        x: int
        y: int = 1

    parent = base(frozen=True, slots=True)(A)
    namespace = {"__annotations__": {"z": "int", "y": "int"}, "z": 3, "y": 7, "__module__": __name__}
    child = decorator(frozen=True, slots=True)(type("B", (parent,), namespace))
    assert astuple(child(1)) == (1, 7, 3)
    assert astuple(parent(1)) == (1, 1)
    assert child.__slots__ == ("z",)
    assert child(1, 1) != parent(1, 1)


def test_dataclass__copies_and_pickles() -> None:
    """Frozen or not, as the standard ones."""
    for one in (Point(1, ("a",)), Open(3, [4])):
        for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert other == one
            assert other is not one


def test_dataclass__shows_itself_in_itself() -> None:
    """A circle does not end the stack."""
    one: Any = Open(1)
    one.seen.append(one)
    assert repr(one) == "Open(value=1, seen=[...])"


def test_dataclass__first_instances_of_many_threads() -> None:
    """Whoever comes first compiles; all get whole instances."""
    made, found, start = _point(records.dataclass), list[int](), threading.Barrier(8)

    def make() -> None:
        start.wait()
        found.append(made(5).total())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [7] * 8


def test_dataclass__has_no_other_options() -> None:
    """What it does not know is refused when the class is made, not found out when it is used."""

    class P:
        _: dataclasses.KW_ONLY
        x: int

    decorate: Decorator = records.dataclass
    with pytest.raises(TypeError, match="keyword-only fields"):
        decorate(slots=True)(P)
    with pytest.raises(TypeError, match="slots only"):
        decorate(slots=False)
    with pytest.raises(TypeError, match="order"):
        decorate(slots=True, order=True)
