# SPDX-License-Identifier: Apache-2.0
"""Kernels from the `.cl` files beside this module: source text, options, tiles and work-group sizes.

It knows no operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

import numpy as np

from dpfedge_opencl.ops.api import Emitting, Facts, Node
from dpfedge_opencl.ops.epilogue import code, kinds
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = [
    "divided",
    "epilogue_options",
    "i32",
    "i64",
    "items",
    "kernel",
    "launch",
    "masked",
    "own_and_extras",
    "panel_of",
    "registers",
    "signed_dot",
    "spread",
    "tensors",
    "tuned",
    "vector",
]  # fmt: skip

i32, i64 = np.int32, np.int64
OPTIONS = ("-cl-denorms-are-zero",)
"""How every program is built: activations that fade out cost a CPU 100 times as much as zeros do."""
HELPERS = "//"
"""The option that holds functions for a kernel, not a definition."""


@lru_cache(maxsize=64)
def _text(name: str) -> str:
    return (files("dpfedge_opencl.ops") / f"{name}.cl").read_text()


@lru_cache(maxsize=1024)
def _made(name: str, entry: str, options: tuple[tuple[str, str | int], ...], target: str) -> Kernel:
    # definitions in the text, not -D: some of them hold spaces, which drivers part at
    defined = "".join(f"#define {key} {value}\n" for key, value in options if key != HELPERS)
    helpers = str(dict(options).get(HELPERS, ""))
    return Kernel(entry, defined + _for_target(_text("prelude") + helpers + _text(name), target), OPTIONS)


def _for_target(text: str, target: str) -> str:
    """`text` with functions that ask for the instruction sets of `target`, where the compiler knows how to say so."""
    if not target:
        return text
    has = "#define ASKING 1\n" + "".join(f"#define HAS_{one.upper()} 1\n" for one in target.split(","))
    push = f'#pragma clang attribute push(__attribute__((target("{target}"))), apply_to = function)\n'
    return f"#ifdef __clang__\n{has}{push}#endif\n{text}\n#ifdef __clang__\n#pragma clang attribute pop\n#endif\n"


def kernel(name: str, entry: str, facts: Facts, **options: str | int) -> Kernel:
    """`entry` of `<name>.cl` with these options; V, the lanes of a vector, is the device's unless given."""
    options = {"V": vector(facts), "CPU": int(facts.cpu), **options}
    return _made(name, entry, tuple(sorted(options.items())), facts.target)


def vector(facts: Facts, most: int = 16) -> int:
    """Lanes of a vector: what the device likes, of 4, 8 and 16, and at most `most`."""
    return next((lanes for lanes in (16, 8, 4) if lanes <= min(facts.vector_width, most)), 4)


def masked(facts: Facts) -> bool:
    """Whether lanes of a load or a store can be left out (AVX-512, which has twice the registers, too)."""
    return facts.cpu and (facts.vector_width >= 16 or "avx512vl" in facts.target)


def registers(facts: Facts) -> int:
    """Vectors that a kernel on a CPU can hold."""
    return 16 if facts.arch.startswith("x86-64") and not masked(facts) else 32


def panel_of(arch: str) -> int:
    """Columns of a panel of packed weights for a class of hardware."""
    if arch.startswith("x86-64"):
        return 32 if arch == "x86-64-v4" else 16
    return 8


def signed_dot(facts: Facts) -> int:
    """Whether a kernel multiplies signed bytes by a GPU's dot product; CPUs have an unsigned one of their own."""
    return int(facts.int8_dot and not facts.cpu)


def tuned(
    facts: Facts, node: Node, family: str, shape: Sequence[int], candidates: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """The parameters that the tuner found for a kernel family and shape, of these candidates; else the first.

    Only what leaves every bit of a result as it is may be a candidate: tiles and groups, never the order of a sum."""
    key = f"{family} {'x'.join(str(size) for size in shape)}"
    offer = getattr(facts.tuning, "offer", None)
    if offer is not None:
        offer(key, tuple(candidates), node.name)
    found = facts.tuning.get(key)
    return tuple(found) if found is not None and tuple(found) in candidates else candidates[0]


def divided(count: int, by: int) -> int:
    """Quotient, rounded up."""
    return -(-count // by)


def spread(facts: Facts, sizes: Sequence[int], local: Sequence[int] = ()) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Global and local sizes for a grid of at least `sizes`: each item its own group on a CPU (PoCL compiles anew for
    each local size, and runs a group on one thread), groups of about 64 elsewhere; kernels check their bounds."""
    if facts.cpu:
        return tuple(sizes), (1,) * len(sizes)
    group = tuple(local) or (min(64, facts.max_work_group), 1, 1)[: len(sizes)]
    return tuple(divided(size, side) * side for size, side in zip(sizes, group, strict=True)), group


def items(facts: Facts, count: int, each_on_cpu: int) -> tuple[int, int]:
    """How many elements one item takes and how many items that makes: many on a CPU, few elsewhere."""
    each = each_on_cpu if facts.cpu else 4
    return each, divided(count, each)


def epilogue_options(node: Node, axis: str, lanes: int) -> dict[str, str | int]:
    """Options that make a kernel apply the node's epilogue (`ops/epilogue.py`) to its result `v`, a vector of `lanes`.

    `axis` is where a channel's operand runs: `last` along a vector, `channel` one for all of it. The kernel says
    EXTRA_LOAD(index of the output's element, channel, elements of the vector that exist), then stores EPILOGUE."""
    found = kinds(node.attrs)
    if "epilogue" not in node.attrs:
        return {"EXTRA_ARGS": "", "EXTRA_LOAD(index_,channel_,have_)": "", "EPILOGUE": "v"}
    names = [f"o{index}" for index in range(len(found))]
    helpers, lines, result = code(node.attrs["epilogue"], "v", names, lanes)
    loads = "".join(f"const VF {name}={_operand(name, kind, axis)};" for name, kind in zip(names, found, strict=True))
    return {
        "EXTRA_ARGS": "".join(f"TENSOR({name}_)," for name in names),
        "EXTRA_LOAD(index_,channel_,have_)": loads + lines.replace("\n", " "),
        "EPILOGUE": result,
        HELPERS: helpers,
    }


def _operand(name: str, kind: str, axis: str) -> str:
    memory = f"AS(const float,{name}_)"
    if kind == "same":
        return f"LOADN({memory}+(index_),have_)"
    if kind == "channel" and axis == "last":
        return f"LOADN({memory}+(channel_),have_)"
    return f"(VF)({memory}[{'channel_' if kind == 'channel' else '0'}])"


def own_and_extras(node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The node's inputs without its epilogue's, and these."""
    own = len(node.inputs) - len(kinds(node.attrs))
    return node.inputs[:own], node.inputs[own:]


def tensors(names: Sequence[str]) -> list[Tensor | Scalar]:
    """Kernel arguments for values."""
    return [Tensor(name) for name in names]


def launch(
    to: Emitting, made: Kernel, args: Sequence[Tensor | Scalar], sizes: Sequence[int], local: Sequence[int] = (),
    work: int = 0,
) -> None:  # fmt: skip
    """Enqueue over a grid of at least `sizes`; `work` is as in `Emitting.launch`."""
    to.launch(made, args, *spread(to.facts, sizes, local), work)
