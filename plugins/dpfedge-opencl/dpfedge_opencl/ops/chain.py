# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators with broadcasting: any number of them in one generated kernel.

Fusion makes one `Chain` of neighbours (`fuse.py`); here are its shape and its kernel. The kernel walks rows of the
innermost axis that is left when equal neighbours are merged; an operand is a vector along it, or one value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.ops.api import Emitting, Facts, Lowering, Node, Value, op
from dpfedge_opencl.ops.text import C_TYPES, STEPS, VECTOR_DTYPES, compute, known_step, statements
from dpfedge_opencl.ops.wide import loaded, vector_type
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["CONTRIBUTED", "ELEMENTWISE", "Chain", "Elementwise", "broadcast", "chain_attrs", "collapse", "result_dtype"]

_CPU_ITEM = 8192  # elements that are worth a thread's attention
_BOOLS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf")
ELEMENTWISE = (*(name for name in STEPS if name not in ("Constant", "Identity")), *_BOOLS, "Where", "Cast", "Mod")
"""Operators that can be steps of a chain."""
CONTRIBUTED = {f"com.microsoft.{name}": name for name in ("Gelu", "FastGelu", "QuickGelu", "BiasGelu")}


def result_dtype(name: str, dtypes: Sequence[str], attrs: dict[str, Any]) -> str:
    """dtype of an elementwise operator's result."""
    if name in _BOOLS:
        return "bool"
    if name == "Cast":
        return str(attrs["to"])
    return dtypes[1] if name == "Where" else dtypes[0]


def chain_attrs(steps: Sequence[Sequence[Any]], dtypes: Sequence[str], results: Sequence[int]) -> dict[str, Any]:
    """Attributes of a `Chain`: its steps (see `ops/text.py`), its operands' dtypes, and the steps that are outputs.

    They are one text, so that kernels can be kept by it without work on each launch.
    """
    return {"chain": json.dumps([list(steps), list(dtypes), list(results)], separators=(",", ":"))}


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all of these broadcast to; ValueError when there is none."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    return tuple(int(size) for size in np.broadcast_shapes(*shapes))


class Elementwise:
    """An elementwise operator before fusion: whether it can be a step, and its shape."""

    contents = ()
    alone = True

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """All dtypes that OpenCL 1.2 devices have; a limit of Clip must be a constant."""
        name = CONTRIBUTED.get(node.op, node.op)
        if name == "Clip":
            known = all(not one or lowering.weight(one) is not None for one in node.inputs[1:])
            return None if known and known_step(name, dtypes[:1]) else "limits are computed, or no floats"
        if name == "BiasGelu":
            return None if known_step("Gelu", dtypes) else f"dtype {dtypes[0]}"
        result = result_dtype(name, dtypes, node.attrs)
        bad = "" in dtypes or result not in C_TYPES or not known_step(name, dtypes)
        return f"dtype {' '.join(dtypes)}" if bad else None

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Nothing: it becomes a chain."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        """That of its operands, broadcast."""
        given = [value for value in inputs if value is not None]
        dtype = result_dtype(node.op, [value.dtype for value in given], node.attrs)
        if node.op == "Clip":
            return [(dtype, given[0].shape)]
        return [(dtype, broadcast([value.shape for value in given]))]

    def emit(self, node: Node, to: Emitting) -> None:
        """Never called: fusion leaves none."""
        raise AssertionError(node.op)


for _name in (*ELEMENTWISE, *CONTRIBUTED):
    op(_name)(Elementwise)


@op("Chain")
class Chain:
    """Elementwise operators in a row, computed by one kernel.

    `parts` may hold `[operand, start, size]`: of that operand it reads this part of the last axis.
    """

    contents = ()

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """Fusion made it of what is supported."""
        return None

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Nothing to pack."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        """Every output has the shape that all operands broadcast to."""
        shapes = [value.shape for value in inputs if value is not None]
        for index, start, size in node.attrs.get("parts", ()):
            if start + size > shapes[index][-1]:
                raise ValueError(f"a part to {start + size} of {shapes[index][-1]}")
            shapes[index] = (*shapes[index][:-1], size)
        shape = broadcast(shapes) if shapes else ()
        return [(dtype, shape) for dtype in _result_dtypes(node.attrs["chain"])]

    def emit(self, node: Node, to: Emitting) -> None:
        """One launch; none for an empty tensor."""
        shape = to.value(node.outputs[0]).shape
        count = math.prod(shape)
        if not count:
            return
        names, shapes, wholes = _parts(node, to)
        rows, inner, strides, modes = collapse(shape, shapes, wholes)
        width = _width(node.attrs["chain"], inner, to.facts)
        kernel = _kernel(node.attrs["chain"], width, modes, len(rows), to.facts.cpu)
        columns, group, items = _split(math.prod(rows), inner, width, to.facts)
        args: list[Tensor | Scalar] = [Tensor(name) for name in (*names, *node.outputs)]
        args += [np.uint32(value) for value in (math.prod(rows), inner, group, columns)]
        args += [np.uint32(size) for size in rows[1:]]
        args += [np.uint32(stride) for one in strides for stride in one]
        to.launch(kernel, args, items, (1, 1) if to.facts.cpu else None)


def _parts(node: Node, to: Emitting) -> tuple[list[str], tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """(names, shapes, sizes of the last axis in memory where it is a part) of the operands; parts are views."""
    names, wholes = list(node.inputs), [0] * len(node.inputs)
    shapes = [to.value(name).shape for name in names]
    for index, start, size in node.attrs.get("parts", ()):
        whole = to.value(node.inputs[index])
        wholes[index], shapes[index] = whole.shape[-1], (*whole.shape[:-1], size)
        names[index] = to.scratch(whole.dtype, shapes[index])
        laid = to.alias(names[index], whole.name, start * DTYPE_BYTES[whole.dtype])
        assert laid, node.name  # it is computed, see `fuse_parts`
    return names, tuple(shapes), tuple(wholes)


@lru_cache(maxsize=1024)
def _result_dtypes(chain: str) -> tuple[str, ...]:
    steps, dtypes, results = json.loads(chain)
    kinds = [*dtypes, *(step[3] for step in steps)]
    return tuple(kinds[index] for index in results)


@lru_cache(maxsize=4096)
def collapse(
    shape: tuple[int, ...], operands: tuple[tuple[int, ...], ...], wholes: tuple[int, ...] = ()
) -> tuple[tuple[int, ...], int, tuple[tuple[int, ...], ...], tuple[bool, ...]]:
    """(sizes of the outer axes, innermost size, each operand's strides over the outer axes, whether it is a vector).

    Axes of size 1 vanish; neighbours are merged where every operand either has both or is one value along both.
    `wholes` has the size in memory of the last axis for each operand that is a part of it, else 0; then it stays apart.
    """
    padded = [(1,) * (len(shape) - len(one)) + one for one in operands]
    sizes: list[int] = []
    masks: list[tuple[bool, ...]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        mask = tuple(one[axis] != 1 for one in padded)
        if masks and masks[-1] == mask and not (any(wholes) and axis == len(shape) - 1):
            sizes[-1] *= size
        else:
            sizes.append(size)
            masks.append(mask)
    if not sizes:
        return (), 1, tuple(() for _ in operands), tuple(True for _ in operands)
    strides = tuple(
        _strides(sizes, [mask[index] for mask in masks], wholes[index] if wholes else 0)
        for index in range(len(operands))
    )
    return tuple(sizes[:-1]), sizes[-1], strides, masks[-1]


def _strides(sizes: Sequence[int], has: Sequence[bool], whole: int) -> tuple[int, ...]:
    """Elements from one index of an outer axis to the next; 0 along axes that the operand lacks."""
    found, step = [], 1
    for size, there in zip(reversed(sizes), reversed(has), strict=True):
        found.append(step if there else 0)
        step *= (whole if len(found) == 1 and whole else size) if there else 1
    return tuple(reversed(found))[:-1]


@lru_cache(maxsize=1024)
def _vectors(chain: str) -> bool:
    steps, dtypes, _ = json.loads(chain)
    return {*dtypes, *(step[3] for step in steps)} <= VECTOR_DTYPES


def _width(chain: str, inner: int, facts: Facts) -> int:
    width = facts.vector_width if _vectors(chain) else 1
    while width > inner:
        width //= 2
    return max(1, width)


def _split(rows: int, inner: int, width: int, facts: Facts) -> tuple[int, int, tuple[int, int]]:
    """(columns of one work item, rows of one, the global size)."""
    if not facts.cpu:
        return width, 1, (-(-inner // width), rows)
    parts = max(1, min(4 * facts.compute_units, rows * inner // _CPU_ITEM))
    if rows >= parts:
        group = -(-rows // parts)
        return inner, group, (1, -(-rows // group))
    across = -(-parts // rows)
    columns = max(width, -(-inner // across // width) * width)
    return columns, 1, (-(-inner // columns), rows)


@lru_cache(maxsize=1024)
def _kernel(chain: str, width: int, vectors: tuple[bool, ...], outer: int, cpu: bool) -> Kernel:
    """The kernel of a chain for one pattern of broadcasting; sizes, strides and places are its arguments."""
    steps, dtypes, results = json.loads(chain)
    count = len(dtypes)
    kinds = [*dtypes, *(step[3] for step in steps)]
    axes = [f"n{axis}" for axis in range(1, outer)]
    strides = [[f"s{index}_{axis}" for axis in range(outer)] for index in range(count)]
    memory = [(f"m{index}", kind) for index, kind in enumerate(dtypes)]
    memory += [(f"r{place}", kinds[index]) for place, index in enumerate(results)]
    lines, names = statements(steps, [f"x{index}" for index in range(count)], dtypes, width)
    values = [*(f"x{index}" for index in range(count)), *names]
    arguments = [f"__global uchar *{name}_base, const ulong {name}_at" for name, _ in memory]
    sizes = ["rows", "inner", "group", "columns", *axes, *(name for one in strides for name in one)]
    arguments += [f"const uint {name}" for name in sizes]
    body = [
        *(_pointer(name, kind) for name, kind in memory),
        "const uint last = min(rows, (uint)(get_global_id(1) + 1) * group);",
        "const uint end = min(inner, (uint)(get_global_id(0) + 1) * columns);",
        "for (uint row = get_global_id(1) * group; row < last; row++) {",
        *_places(strides, axes, outer),
        *(_single(index, dtypes[index], width) for index in range(count) if not vectors[index]),
        f"for (uint next = get_global_id(0) * columns; next < end; next += {width}) {{",
        f"const uint c = min(next, inner - {width});" if width > 1 else "const uint c = next;",
        *(_vector(index, dtypes[index], width, cpu) for index in range(count) if vectors[index]),
        *lines,
        *(_store(f"r{place}", kinds[index], values[index], width, cpu) for place, index in enumerate(results)),
        "}",
        "}",
    ]  # fmt: skip
    text = "\n".join(body)
    wide = vector_type("float", width, cpu and width > 1)
    source = f"{wide}{compute(width, text)}\n__kernel void chain({', '.join(arguments)}) {{\n{text}\n}}\n"
    return Kernel("chain", source)


def _pointer(name: str, kind: str) -> str:
    return f"__global {C_TYPES[kind]} *{name} = (__global {C_TYPES[kind]} *)({name}_base + {name}_at);"


def _places(strides: Sequence[Sequence[str]], axes: Sequence[str], outer: int) -> list[str]:
    """Where each operand's row begins."""
    lines = ["uint rest = row;"] if outer > 1 else []
    indices = ["row"] if outer == 1 else [f"i{axis}" for axis in range(outer)]
    for axis in range(outer - 1, 0, -1):
        lines.append(f"const uint i{axis} = rest % {axes[axis - 1]}; rest /= {axes[axis - 1]};")
    if outer > 1:
        lines.append("const uint i0 = rest;")
    for index, one in enumerate(strides):
        terms = [f"(size_t){at} * {stride}" for at, stride in zip(indices, one, strict=False)]
        lines.append(f"const size_t b{index} = {' + '.join(terms) or '0'};")
    return [*lines, "const size_t to = (size_t)row * inner;"]


def _ctype(kind: str, width: int) -> str:
    if kind in ("f32", "f16"):
        return "float" if width == 1 else f"float{width}"
    return C_TYPES[kind] if width == 1 else f"int{width}"


def _single(index: int, kind: str, width: int) -> str:
    return f"const {_ctype(kind, width)} x{index} = {_single_text(index, kind, width)};"


def _vector(index: int, kind: str, width: int, cpu: bool) -> str:
    return f"const {_ctype(kind, width)} x{index} = {_vector_text(index, kind, width, cpu)};"


def _single_text(index: int, kind: str, width: int) -> str:
    if kind == "f16":
        return f"vload_half(b{index}, m{index})" if width == 1 else f"(float{width})(vload_half(b{index}, m{index}))"
    if width == 1:
        return f"m{index}[b{index}]"
    value = f"m{index}[b{index}]"
    return f"(int{width})(-(int)({value} != 0))" if kind == "bool" else f"(float{width})({value})"


def _vector_text(index: int, kind: str, width: int, cpu: bool) -> str:
    at = f"m{index} + b{index} + c"
    if kind == "f16":
        return f"vload_half{width if width > 1 else ''}(0, {at})"
    if width == 1:
        return f"*({at})"
    if kind == "bool":
        return f"-convert_int{width}(vload{width}(0, {at}))"
    return loaded(width, at, cpu)


def _store(name: str, kind: str, value: str, width: int, cpu: bool) -> str:
    at = f"{name} + to + c"
    if kind == "f16":
        return f"vstore_half{width if width > 1 else ''}({value}, 0, {at});"
    if width == 1:
        return f"*({at}) = {value};"
    if kind == "bool":
        return f"vstore{width}(convert_uchar{width}({value} & 1), 0, {at});"
    return f"*(__global WIDE *)({at}) = {value};" if cpu else f"vstore{width}({value}, 0, {at});"
