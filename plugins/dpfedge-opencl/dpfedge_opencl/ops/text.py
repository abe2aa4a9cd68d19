# SPDX-License-Identifier: Apache-2.0
"""OpenCL C of elementwise operators: steps over named operands in, statements out; for scalars and for vectors.

A step is `[operator, arguments, attributes, dtype of the result]`; an argument is the number of an operand, or, behind
the operands, that of an earlier step. It knows no memory and no shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["C_TYPES", "HELPERS", "STEPS", "UNSIGNED", "VECTOR_DTYPES", "compute", "literal", "statements"]

C_TYPES: Mapping[str, str] = {
    "f32": "float", "f16": "half", "i8": "char", "u8": "uchar", "i16": "short", "u16": "ushort", "i32": "int",
    "u32": "uint", "i64": "long", "u64": "ulong", "bool": "uchar",
}  # fmt: skip
"""dtype → its type in memory."""
UNSIGNED: Mapping[int, str] = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
"""Bytes of an element → what it is moved as."""
VECTOR_DTYPES = frozenset({"f32", "f16", "bool"})
"""What is computed in vectors: floats, and masks (a bool is an int of all ones there)."""

_FLOAT = Callable[[Sequence[str], Mapping[str, Any]], str]

# Abramowitz and Stegun 7.1.26: absolute error 1.5e-7. Cephes' tanhf: a polynomial near 0, exp elsewhere.
HELPERS = """
#define DPF_MATH(T, I) \\
static T __attribute__((overloadable)) dpf_erf(T x) { \\
    const T a = fabs(x); \\
    const T t = 1.0f / (1.0f + 0.3275911f * a); \\
    const T y = 1.0f - ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t \\
                        + 0.254829592f) * t * exp(-a * a); \\
    return copysign(y, x); } \\
static T __attribute__((overloadable)) dpf_tanh(T x) { \\
    const T a = fmin(fabs(x), (T)(10.0f)); \\
    const T s = a * a; \\
    const T low = ((((-5.70498872745e-3f * s + 2.06390887954e-2f) * s - 5.37397155531e-2f) * s \\
                    + 1.33314422036e-1f) * s - 3.33332819422e-1f) * s * a + a; \\
    const T high = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f); \\
    return copysign(select(high, low, (I)(a < 0.625f)), x); } \\
static T __attribute__((overloadable)) dpf_sigmoid(T x) { return 1.0f / (1.0f + exp(-x)); }
"""
"""Functions for scalars; `compute` adds those for a vector's width."""


def literal(value: float) -> str:
    """A float as OpenCL C writes it, to the last bit."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = f"{value:.9g}"
    text += "f" if any(mark in text for mark in ".e") else ".0f"
    return f"({text})" if value < 0 else text


def compute(width: int, text: str) -> str:
    """The helper functions that `text` calls, for scalars and for vectors of `width`; compilers are slow."""
    if "dpf_" not in text:
        return ""
    vector = f"DPF_MATH(float{width}, int{width})\n" if width > 1 else ""
    return f"{HELPERS}DPF_MATH(float, int)\n{vector}"


def _infix(sign: str) -> _FLOAT:
    return lambda a, _: f" {sign} ".join(a)


def _call(name: str) -> _FLOAT:
    return lambda a, _: f"{name}({', '.join(a)})"


def _fold(name: str) -> _FLOAT:
    def text(a: Sequence[str], _: Mapping[str, Any]) -> str:
        found = a[0]
        for other in a[1:]:
            found = f"{name}({found}, {other})"
        return found

    return text


def _clip(a: Sequence[str], attrs: Mapping[str, Any]) -> str:
    found = a[0]
    if "min" in attrs:
        found = f"fmax({found}, {literal(attrs['min'])})"
    if "max" in attrs:
        found = f"fmin({found}, {literal(attrs['max'])})"
    return found


def _leaky(a: Sequence[str], attrs: Mapping[str, Any]) -> str:
    return f"fmax({a[0]}, 0.0f) + {literal(attrs.get('alpha', 0.01))} * fmin({a[0]}, 0.0f)"


def _hard(a: Sequence[str], attrs: Mapping[str, Any]) -> str:
    alpha, beta = literal(attrs.get("alpha", 0.2)), literal(attrs.get("beta", 0.5))
    return f"clamp({alpha} * {a[0]} + {beta}, 0.0f, 1.0f)"


def _gelu(a: Sequence[str], attrs: Mapping[str, Any]) -> str:
    return _fast_gelu(a, attrs) if attrs.get("approximate") == "tanh" else (
        f"0.5f * {a[0]} * (1.0f + dpf_erf({a[0]} * 0.707106781f))"
    )  # fmt: skip


def _fast_gelu(a: Sequence[str], _: Mapping[str, Any]) -> str:
    inner = f"0.797884561f * ({a[0]} + 0.044715f * {a[0]} * {a[0]} * {a[0]})"
    return f"0.5f * {a[0]} * (1.0f + dpf_tanh({inner}))"


def _elu(a: Sequence[str], attrs: Mapping[str, Any]) -> str:
    return f"fmax({a[0]}, 0.0f) + {literal(attrs.get('alpha', 1.0))} * (exp(fmin({a[0]}, 0.0f)) - 1.0f)"


_POWERS: Mapping[float, str] = {
    2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 0.5: "sqrt({0})", -0.5: "1.0f / sqrt({0})", -1.0: "1.0f / {0}",
    1.0: "{0}",
}  # fmt: skip


def _power(a: Sequence[str], attrs: Mapping[str, Any]) -> str:
    if "exponent" not in attrs:
        return f"pow({a[0]}, {a[1]})"
    simple = _POWERS.get(attrs["exponent"])
    return simple.format(a[0]) if simple else f"pow({a[0]}, (TYPE)({literal(attrs['exponent'])}))"


STEPS: Mapping[str, _FLOAT] = {
    "Add": _infix("+"), "Sub": _infix("-"), "Mul": _infix("*"), "Div": _infix("/"), "Pow": _power,
    "Sum": _infix("+"), "Max": _fold("fmax"), "Min": _fold("fmin"),
    "Neg": lambda a, _: f"-{a[0]}", "Abs": _call("fabs"), "Exp": _call("exp"), "Log": _call("log"),
    "Sqrt": _call("sqrt"), "Sin": _call("sin"), "Cos": _call("cos"), "Ceil": _call("ceil"), "Floor": _call("floor"),
    "Round": _call("rint"), "Sign": _call("sign"), "Erf": _call("dpf_erf"), "Tanh": _call("dpf_tanh"),
    "Sigmoid": _call("dpf_sigmoid"), "Reciprocal": lambda a, _: f"1.0f / {a[0]}",
    "Relu": lambda a, _: f"fmax({a[0]}, 0.0f)", "LeakyRelu": _leaky, "HardSigmoid": _hard, "Clip": _clip,
    "HardSwish": lambda a, _: f"{a[0]} * clamp({a[0]} * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f)", "Elu": _elu,
    "Softplus": lambda a, _: f"fmax({a[0]}, 0.0f) + log1p(exp(-fabs({a[0]})))",
    "Softsign": lambda a, _: f"{a[0]} / (1.0f + fabs({a[0]}))",
    "Gelu": _gelu, "FastGelu": _fast_gelu,
    "QuickGelu": lambda a, attrs: f"{a[0]} * dpf_sigmoid({literal(attrs.get('alpha', 1.702))} * {a[0]})",
    "PRelu": lambda a, _: f"fmax({a[0]}, 0.0f) + {a[1]} * fmin({a[0]}, 0.0f)",
    "Identity": lambda a, _: a[0], "Constant": lambda _, attrs: f"(TYPE)({literal(attrs['value'])})",
}  # fmt: skip
"""Operator → its text over float operands; `TYPE` stands for the type of the result."""

_COMPARE = {"Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}
_LOGIC = {"And": ("&", "&&"), "Or": ("|", "||"), "Xor": ("^", "^")}
_INTEGER: Mapping[str, _FLOAT] = {
    "Add": _infix("+"), "Sub": _infix("-"), "Mul": _infix("*"), "Div": _infix("/"), "Sum": _infix("+"),
    "Max": _fold("max"), "Min": _fold("min"), "Neg": lambda a, _: f"-{a[0]}",
    "Abs": lambda a, _: f"({a[0]} < 0 ? -{a[0]} : {a[0]})",
    "Sign": lambda a, _: f"(({a[0]} > 0) - ({a[0]} < 0))",
    "Identity": lambda a, _: a[0], "Relu": lambda a, _: f"max({a[0]}, (TYPE)0)",
    "Constant": lambda _, attrs: f"(TYPE)({int(attrs['value'])}L)",
    "Mod": lambda a, attrs: f"{a[0]} % {a[1]}" if attrs.get("fmod") else f"(({a[0]} % {a[1]}) + {a[1]}) % {a[1]}",
}  # fmt: skip


def known_step(op: str, dtypes: Sequence[str]) -> bool:
    """Whether there is text for `op` over operands of these dtypes."""
    floats = all(dtype in ("f32", "f16") for dtype in dtypes)
    numbers = all(dtype in C_TYPES for dtype in dtypes)
    if op in _COMPARE or op == "Cast":
        return numbers
    if op in _LOGIC or op == "Not":
        return all(dtype == "bool" for dtype in dtypes)
    if op == "Where":
        return numbers and dtypes[0] == "bool"
    if op in ("IsNaN", "IsInf"):
        return floats
    return floats and op in STEPS if floats else numbers and "bool" not in dtypes and op in _INTEGER


def _type(dtype: str, width: int) -> str:
    if dtype in ("f32", "f16"):
        return "float" if width == 1 else f"float{width}"
    if width > 1:
        return f"int{width}"  # a mask
    return C_TYPES[dtype]


def _cast(a: str, source: str, target: str, width: int) -> str:
    floats = ("f32", "f16")
    if (source in floats) == (target in floats) and (source in floats or source == target):
        return a
    if target == "bool":
        return f"({a} != {'0.0f' if source in floats else '0'})"
    if width > 1:
        return f"convert_float{width}({a} & 1)"
    return f"({_type(target, 1)})({a})"


def _is_inf(a: str, attrs: Mapping[str, Any]) -> str:
    signs = [f"({a} {sign} 0.0f)" for key, sign in _SIGNS.items() if attrs.get(key, 1)]
    return f"(isinf({a}) & ({' | '.join(signs) or f'({a} != {a})'}))"


_SIGNS = {"detect_positive": ">", "detect_negative": "<"}


def _text(op: str, a: Sequence[str], attrs: Mapping[str, Any], dtypes: Sequence[str], result: str, width: int) -> str:
    if op in _COMPARE:
        return f"({a[0]} {_COMPARE[op]} {a[1]})"
    if op in _LOGIC:
        return f"({a[0]} {_LOGIC[op][0 if width > 1 else 1]} {a[1]})"
    if op == "Not":
        return f"~{a[0]}" if width > 1 else f"!{a[0]}"
    if op == "Where":
        return f"select({a[2]}, {a[1]}, {a[0]})" if width > 1 else f"({a[0]} ? {a[1]} : {a[2]})"
    if op == "IsNaN":
        return f"isnan({a[0]})"
    if op == "IsInf":
        return _is_inf(a[0], attrs)
    if op == "Cast":
        return _cast(a[0], dtypes[0], result, width)
    table = STEPS if result in ("f32", "f16") else _INTEGER
    return table[op](a, attrs).replace("TYPE", _type(result, width))


def statements(
    steps: Sequence[Sequence[Any]], operands: Sequence[str], dtypes: Sequence[str], width: int, prefix: str = "t"
) -> tuple[list[str], list[str]]:
    """(one statement for each step, the names of the results); operands are variables of the vector's type."""
    names, kinds = list(operands), list(dtypes)
    lines: list[str] = []
    for op, arguments, attrs, dtype in steps:
        given = [names[index] for index in arguments]
        text = _text(op, given, attrs, [kinds[index] for index in arguments], dtype, width)
        name = f"{prefix}{len(lines)}"
        lines.append(f"const {_type(dtype, width)} {name} = {_typed(text, dtype, width)};")
        names.append(name)
        kinds.append(dtype)
    return lines, names[len(operands) :]


def _typed(text: str, dtype: str, width: int) -> str:
    """Integers of less than an int are cut to their size, as NumPy does; a bool is 0 or 1."""
    narrow = width == 1 and dtype in ("i8", "u8", "i16", "u16")
    return f"({C_TYPES[dtype]})({text})" if narrow else text
