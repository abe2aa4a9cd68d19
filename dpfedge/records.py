# SPDX-License-Identifier: Apache-2.0
"""`dataclass(slots=True)`, as in the standard library, for classes that every start makes and of which few are used.

The standard decorator compiles up to six methods for each class, half a millisecond of processor; a start of dpfedge
makes 170 classes. This one compiles `__init__` only, when the first instance is made; the other methods go by the
fields' names. For type checkers, `replace`, `fields`, `asdict`, `copy`, `pickle` and for dataclasses of either kind
that inherit, the class is a standard one; `inspect.signature` knows its parameters once there was an instance.
Other options than the three below, `InitVar` and keyword-only fields are the standard decorator's alone.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_Fields = Mapping[str, "dataclasses.Field[Any]"]
_LEFT_OUT = object()  # what a parameter with a default_factory is when nothing was given


@dataclasses.dataclass(frozen=True, slots=True)
class _Frozen:
    """Has the parameters that `dataclasses` looks for in a class that somebody inherits from."""


@dataclasses.dataclass(slots=True)
class _Thawed:
    """As `_Frozen`, of a class whose instances may be changed."""


def _dataclass(*, slots: bool, frozen: bool = False, eq: bool = True) -> Callable[[type], type]:
    if not slots:
        raise TypeError("dpfedge.records.dataclass makes classes with slots only; take dataclasses.dataclass")

    def decorate(cls: type) -> type:
        inherited, own = _inherited(cls), _own(cls)
        fields = {**inherited, **own}

        def first_init(self: Any, *args: Any, **named: Any) -> None:
            init = _init(made, fields, frozen=frozen)
            made.__init__ = init
            init(self, *args, **named)

        dropped = {*own, "__dict__", "__weakref__"}
        body = {name: value for name, value in vars(cls).items() if name not in dropped}
        if "__eq__" in body and body["__hash__"] is None:
            del body["__hash__"]  # Python's own answer to a class with `__eq__`
        methods = {"__init__": first_init, "__repr__": _repr, **(_compared(fields, frozen=frozen) if eq else {})}
        body = {
            **methods, **body,
            "__slots__": tuple(name for name in own if name not in inherited),
            "__match_args__": tuple(name for name, one in fields.items() if one.init),
            "__dataclass_fields__": fields,
            "__dataclass_params__": vars(_Frozen if frozen else _Thawed)["__dataclass_params__"],
            **(_guards(fields, lambda: made) if frozen else {}),
        }  # fmt: skip
        made: Any = type(cls)(cls.__name__, cls.__bases__, body)
        made.__qualname__ = cls.__qualname__
        return made  # type: ignore[no-any-return]

    return decorate


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _inherited(cls: type) -> _Fields:
    found: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        found.update(getattr(base, "__dataclass_fields__", {}))
    return found


def _own(cls: type) -> _Fields:
    """The fields that `cls` itself has: `dataclasses` reads them off a class that has nothing else."""
    typed = inspect.get_annotations(cls)
    values = {name: vars(cls)[name] for name in typed if name in vars(cls)}
    bare = type(cls.__name__, (), {**values, "__annotations__": typed, "__module__": cls.__module__, "__doc__": "."})
    fields = dataclasses.fields(dataclasses.dataclass(init=False, repr=False, eq=False)(bare))
    if any(one.kw_only for one in fields):
        raise TypeError(f"{cls.__qualname__} has keyword-only fields; take dataclasses.dataclass")
    return {one.name: one for one in fields}


def _init(cls: type, fields: _Fields, *, frozen: bool) -> Callable[..., None]:
    """The class's `__init__`, compiled as the standard decorator would; a frozen class's slots are set directly."""
    known: dict[str, Any] = {"_left_out": _LEFT_OUT}
    parameters, lines = ["self"], []
    for name, one in fields.items():
        value = name if one.init else None
        if one.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"], default = one.default_factory, "=_left_out"
            value = f"_make_{name}() if {name} is _left_out else {name}" if one.init else f"_make_{name}()"
        elif one.default is not dataclasses.MISSING:
            known[f"_default_{name}"], default = one.default, f"=_default_{name}"
            value = value or f"_default_{name}"
        else:
            default = ""
        if one.init:
            parameters.append(name + default)
        if value and frozen:
            known[f"_set_{name}"] = getattr(cls, name).__set__
            lines.append(f"_set_{name}(self, {value})")
        elif value:
            lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), known)
    init: Any = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{name: one.type for name, one in fields.items() if one.init}, "return": None}
    return init  # type: ignore[no-any-return]


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def _compared(fields: _Fields, *, frozen: bool) -> dict[str, Any]:
    """`__eq__`, and `__hash__`: None for a class whose instances may be changed."""
    values = _values(name for name, one in fields.items() if one.compare)
    hashed = _values(name for name, one in fields.items() if (one.compare if one.hash is None else one.hash))

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": (lambda self: hash(hashed(self))) if frozen else None}


def _values(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    wanted = tuple(names)
    # attrgetter gives a tuple of two and more only
    return attrgetter(*wanted) if len(wanted) > 1 else lambda one: tuple(getattr(one, name) for name in wanted)


def _guards(fields: _Fields, made: Callable[[], Any]) -> dict[str, Any]:
    """What a frozen class refuses, and how it is copied and pickled all the same."""

    def set_one(self: Any, name: str, value: object) -> None:
        if type(self) is made() or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made(), self).__setattr__(name, value)

    def delete_one(self: Any, name: str) -> None:
        if type(self) is made() or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made(), self).__delattr__(name)

    return {"__setattr__": set_one, "__delattr__": delete_one, "__getstate__": _state, "__setstate__": _set_state}


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
