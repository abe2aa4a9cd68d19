# SPDX-License-Identifier: Apache-2.0
"""Manifests to try on the readers: one that uses every field of the format, and random changes of it.

The changes keep the encoding right (`change`) or break it (`damage`). Both are functions of the dice alone.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import cbor2

__all__ = ["SECTIONS_END", "WHOLE", "change", "damage", "encode", "parts", "values"]

_SIZES = {"weights": 1000, "graph": 30, "asset/tokenizer": 10, "prefix": 128, "sealed": 64, "golden": 100, "licence": 5}
_KINDS = {"asset/tokenizer": "asset"}


def _sections() -> list[dict[str, Any]]:
    made = []
    for place, (name, size) in enumerate(_SIZES.items()):
        kind = _KINDS.get(name, name)
        made.append({
            "name": name, "kind": kind, "offset": 65536 * (place + 1), "size": size, "xxh3": bytes(16),
            "sha256": bytes(32), "critical": kind not in ("golden", "licence"),
        })  # fmt: skip
    return made


SECTIONS_END = 65536 * len(_SIZES) + list(_SIZES.values())[-1]
"""Where the sections of `WHOLE` end in the file."""


def values(**changes: Any) -> dict[str, Any]:
    """Three numbers of a golden record, that fit port `x`."""
    return {"dtype": "f32", "dims": [1, 3], "offset": 4, "size": 12, **changes}


_MEMORY = {"past": {"offset": 64, "size": 32, "dtype": "i64", "dims": [2, 2]}}
_PREFIX = {"section": "prefix", "tokens": [1, 2, 300], "memory": _MEMORY, "key": {"weights": "00ff", "asset/t": "é"}}


def _target(name: str, whitelist: list[Any]) -> dict[str, Any]:
    graph = {
        "section": "graph", "weights": ["weights"], "options": {"threads": 2, "ratio": 0.5},
        "inputs": [{"name": "x", "dtype": "f32", "dims": [1, "n"]}, {"name": "past", "dtype": "i64", "dims": [2, 2]}],
        "outputs": [{"name": "y", "dtype": "f32", "dims": [4, 3]}],
    }  # fmt: skip
    return {
        "id": name, "backend": "cpu", "backend_abi": 1, "memory_bytes": 1 << 20, "whitelist": whitelist,
        "decisions": [["keep q4_1 blocks", "the CPU has no fp8\n"]],
        "models": {"llm": {"graphs": {"step": graph, "tail": {"section": "graph"}}, "prefix": copy.deepcopy(_PREFIX)}},
    }  # fmt: skip


_WHITELIST = [
    "and", ["class", "cpu.x86_64", "cpu.aarch64"], ["or", ["arch", "x86-64-v3"], ["memory", 1 << 30]],
    ["not", ["board", "orin"]], ["feature", "fp16"], ["driver", "nvidia", ">=550.54", "<600"],
]  # fmt: skip

WHOLE: dict[str, Any] = {
    "format": [1, 0], "name": "whole", "version": "1.0.0", "created": 1700000000, "sections": _sections(),
    "compiler": {"name": "test", "version": "1"},
    "models": {
        "llm": {
            "family": "llama", "licence": "Apache-2.0", "source": "here", "config": {"layers": 2, "eps": 1e-5},
            "assets": {"tokenizer.json": "asset/tokenizer"},
        },
        "vad": {"family": "silero-vad", "licence": "MIT", "source": "there"},
    },
    "targets": [_target("cpu.v3", _WHITELIST), _target("any", ["class", "cpu.x86_64"])],
    "pipeline": {"stages": {"llm": {"model": "llm", "temperature": 0.5}}},
    "licences": [{"name": "llm", "spdx": "Apache-2.0", "section": "licence"}, {"name": "code", "spdx": "MIT"}],
    "golden": [
        {"note": "nothing"},
        {
            "model": "llm", "graph": "step", "section": "golden", "inputs": {"x": values()},
            "outputs": {"y": values(dims=[1, 3], at=[2, 0], whole=[4, 3], max_abs=0.25, rel_l2=1)},
            "in_place": [["present.", "past"]],
        },
    ],
    "seal": {
        "package": bytes(32), "target": "any", "backend": "cpu", "driver": "", "device": {"kind": "cpu.x86_64"},
        "libraries": {"onnxruntime": "1.32"}, "prefixes": {"llm": _PREFIX},
        "built": [{"model": "llm", "graph": "step", "name": "packed", "section": "sealed"}],
    },
}  # fmt: skip
"""Accepted by the fast check, when its sections lie in a file of zeros."""


def parts() -> list[dict[str, Any]]:
    """Smaller accepted manifests that use a part of the format each; together all of it."""
    names = {"models": ["asset/tokenizer"], "licences": ["licence"], "seal": ["prefix", "sealed"], "pipeline": []}
    made = [{name: WHOLE[name] for name in ("format", "name", "version")} | {"sections": []}]
    for part, sections in names.items():
        made.append(made[0] | {part: WHOLE[part], "sections": _renumbered(sections)})
    ports = WHOLE["targets"][1]["models"]["llm"]["graphs"]["step"]
    graph = {"section": "graph", "weights": ["weights"], "inputs": ports["inputs"], "outputs": ports["outputs"]}
    target = WHOLE["targets"][1] | {"models": {"llm": {"graphs": {"step": graph}}}}
    models = {"models": {"llm": WHOLE["models"]["vad"]}}
    made.append(made[0] | models | {"targets": [target], "sections": _renumbered(["weights", "graph"])})
    made.append(made[-1] | {"golden": WHOLE["golden"], "sections": _renumbered(["weights", "graph", "golden"])})
    made.append(made[0] | {"targets": [WHOLE["targets"][0] | {"models": {}}]})
    return copy.deepcopy(made)


def _renumbered(names: list[str]) -> list[dict[str, Any]]:
    found = [section for section in WHOLE["sections"] if section["name"] in names]
    return [section | {"offset": 65536 * (place + 1)} for place, section in enumerate(found)]


_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 63, 64, 255, 256, 257, 1024, 1025, 4096, 4097, 65535, 65536, 131072, 1 << 30,
    (1 << 31) - 1, 1 << 31, 1 << 38, (1 << 38) + 1, 1 << 40, (1 << 40) + 1, 1 << 50, (1 << 50) + 1, (1 << 63) - 1,
    -(1 << 63), 0.5, -0.5, -0.0, 0.1, 1e-7, 1.5e300, 65504.0, 5e-324,
    "", "x", "y", "past", "a/b", "a//b", "/a", ".x", "a/", "é", "\x7f", "\x00", "\t\n", "\u0085", "\u00a0", "\u061c",
    "\u200e", "\u2027", "\u2028", "\u202e", "\u2065", "\u2066", "\u206a", "\U0001f600", "x" * 127, "x" * 128, "x" * 129,
    "é" * 64, "é" * 65, "y" * 1024, "y" * 1025, "y" * 65536, "y" * 65537, b"", b"x" * 16, b"x" * 32, b"\xff" * 33,
    [], [[]], {}, {"": 1}, {"a": {}}, {"a b": 1}, [1], [1, 0], [1, 1], [1, 2], [0, 0], [1, "n"], ["a", "b"], [1] * 9,
    "weights", "graph", "asset", "prefix", "sealed", "golden", "licence", "new", "asset/tokenizer", "llm", "vad",
    "step", "tail", "cpu.v3", "any", "f32", "bf16", "bytes", "i64", "bool", "f31",
    ["and"], ["and", ["board", "x"]], ["xor", ["board"]], ["not", ["memory", 5]], ["not", ["board", "x"], ["board"]],
    ["driver", "a"], ["driver", "a", ">=1"], ["driver", "a", ">=1."], ["driver", "a b", "<1"], ["driver", "a", "==1.2"],
    ["driver", "a", "<1.2.3.4.5.6.7.8"], ["driver", "a", "<1.2.3.4.5.6.7.8.9"], ["driver", "a", "=1"],
    ["driver", "a", ">1"], ["driver", "a", ">=1234567890"], ["memory", 1, 2],
    ["not", ["not", ["not", ["not", ["not", ["not", ["not", ["board", "x"]]]]]]]],
    ["not", ["not", ["not", ["not", ["not", ["not", ["not", ["not", ["board", "x"]]]]]]]]],
    ["or", *[["and", *[["board", "x"]] * 255]] * 4], ["or", *[["and", *[["board", "x"]] * 250]] * 4],
    values(), values(size=11), {"past": values(offset=64)}, {"x": values(), "past": values()},
)  # fmt: skip
_VALUES = tuple(cbor2.loads(cbor2.dumps(value)) for value in _VALUES)  # no part twice: a change of one changed both
_KEYS = ("a", "b/c", "x y", "x", "y", "past", "section", "name", "at", "whole", "prefix", "target", "graph", "max_abs")


def encode(value: Any) -> bytes:
    """The deterministic encoding."""
    return cbor2.dumps(value, canonical=True)


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [place]
    if isinstance(value, dict):
        for key in value:
            found += _places(value[key], (*place, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            found += _places(value[index], (*place, index))
    return found


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        value = value[step]
    return value


def _change_once(value: Any, dice: random.Random) -> None:
    places = _places(value)[1:]
    if not places:
        return
    *outer, last = dice.choice(places)
    holder, kind = _at(value, tuple(outer)), dice.random()
    if kind < 0.5:
        holder[last] = copy.deepcopy(dice.choice(_VALUES))
    elif kind < 0.65:
        del holder[last]
    elif kind < 0.8:
        holder[last] = copy.deepcopy(_at(value, dice.choice(places)))
    elif isinstance(holder, list):
        holder.insert(dice.randrange(len(holder) + 1), copy.deepcopy(holder[last]))
    else:
        holder[dice.choice(_KEYS)] = copy.deepcopy(holder[last])


def change(dice: random.Random, value: dict[str, Any] = WHOLE) -> dict[str, Any]:
    """A manifest with one to three values replaced, removed, repeated or copied elsewhere."""
    changed = copy.deepcopy(value)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        _change_once(changed, dice)
    return changed


def damage(dice: random.Random, data: bytes) -> bytes:
    """Bytes with a few of them replaced, removed or added."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4))):
        place, kind, count = dice.randrange(len(changed) or 1), dice.random(), dice.choice((1, 1, 2, 5))
        if kind < 0.6 and changed:
            changed[place] = dice.randrange(256)
        elif kind < 0.8:
            del changed[place : place + count]
        else:
            changed[place:place] = dice.randbytes(count)
    return bytes(changed)
