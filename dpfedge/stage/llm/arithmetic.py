# SPDX-License-Identifier: Apache-2.0
"""A spoken sum in ("what is seven times eight"), its answer in words out, or None; exact, and bounded in size.

It evaluates numbers and the four operations only; nothing is ever executed as code.
"""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["answer_sum"]

_UNITS = {
    word: value
    for value, word in enumerate(
        (
            "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
            "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
        )
    )
}  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {"thousand": 1000, "million": 1_000_000, "billion": 1_000_000_000}
_NUMBER_WORDS = frozenset({*_UNITS, *_TENS, *_SCALES, "hundred", "point", "and", "a"})
_OPENING = re.compile(
    r"^(?:(?:hey|ok|okay|please|so|and|can you|could you|tell me|calculate|compute|work out|what's|whats|what|how much|"
    r"is|are|does|do|the answer to)\b[\s,]*)*",
    re.IGNORECASE,
)
_OPERATIONS = (
    (r"multiplied by|times|x|\*|×", "times"),
    (r"divided by|over|/|÷", "divided by"),
    (r"plus|added to|\+", "plus"),
    (r"minus|less|take away|-|−|–", "minus"),
    (r"percent of|per cent of|% of", "percent of"),
)
_WORD = re.compile(r"%|[a-z']+|\d+(?:[.,]\d+)*|[^\sa-z\d]", re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")
_HYPHEN = re.compile(r"(?<=[a-z])-(?=[a-z])")  # twenty-one
_TERMS_MAX, _DIGITS_MAX, _VALUE_MAX = 8, 18, 10**15
_STRONG = ("times", "divided by", "percent of")


def answer_sum(text: str) -> str | None:
    """The answer as a sentence, for example `7 times 8 is 56.`; None when `text` is no sum."""
    terms = _terms(text.strip().rstrip("?.!= ").lower())
    if terms is None:
        return None
    numbers, operations = terms
    asked = _say(numbers[0]) + "".join(
        f" {name} {_say(number)}" for name, number in zip(operations, numbers[1:], strict=True)
    )
    try:
        result = _evaluate(numbers, operations)
    except ZeroDivisionError:
        return "A number cannot be divided by zero."
    if abs(result) > _VALUE_MAX:
        return None
    return f"{asked} is {_say(result)}."


def _terms(text: str) -> tuple[list[Fraction], list[str]] | None:
    words = _WORD.findall(_OPENING.sub("", _HYPHEN.sub(" ", text)))
    numbers: list[Fraction] = []
    operations: list[str] = []
    while words:
        found = _number(words)
        if found is None or len(numbers) == _TERMS_MAX:
            return None
        number, words = found
        numbers.append(number)
        if words in (["equal"], ["equals"], ["make"], ["makes"]):
            words = []
        if not words:
            break
        operation = _operation(words)
        if operation is None:
            return None
        name, words = operation
        operations.append(name)
    return (numbers, operations) if operations and len(numbers) == len(operations) + 1 else None


def _operation(words: list[str]) -> tuple[str, list[str]] | None:
    for size in (3, 2, 1):
        said = " ".join(words[:size])
        for pattern, name in _OPERATIONS:
            if len(words) >= size and re.fullmatch(pattern, said):
                return name, words[size:]
    return None


def _number(words: list[str]) -> tuple[Fraction, list[str]] | None:
    """A number at the start, in digits or words, and what follows it."""
    sign = 1
    if words[:1] in (["minus"], ["-"], ["−"]):
        sign, words = -1, words[1:]
    if words and len(words[0]) <= _DIGITS_MAX and _DIGITS.fullmatch(words[0]):
        return sign * Fraction(words[0].replace(",", "")), words[1:]
    size = next((index for index, word in enumerate(words) if word not in _NUMBER_WORDS), len(words))
    value = _spelt(words[:size])
    return None if value is None else (sign * value, words[size:])


def _spelt(words: list[str]) -> Fraction | None:
    if "point" in words:
        place = words.index("point")
        whole, digits = _spelt(words[:place]), [_UNITS.get(word, 10) for word in words[place + 1 :]]
        if whole is None or not digits or max(digits) > 9 or len(digits) > _DIGITS_MAX:
            return None
        return whole + Fraction(int("".join(map(str, digits))), 10 ** len(digits))
    said = [word for word in words if word not in ("a", "and")]
    total, group = 0, 0
    for word in said:
        if word in _SCALES:
            total, group = total + max(group, 1) * _SCALES[word], 0
        elif word == "hundred":
            group = max(group, 1) * 100
        elif (value := _UNITS.get(word, _TENS.get(word))) is not None and _joins(group, value):
            group += value
        else:
            return None
    return Fraction(total + group) if said and total + group <= _VALUE_MAX else None


def _joins(group: int, value: int) -> bool:
    """Whether a unit or ten may follow what was said: twenty one, but not one two."""
    return group % 100 == 0 or (group % 10 == 0 and group % 100 >= 20 and 0 < value < 10)


def _evaluate(numbers: list[Fraction], operations: list[str]) -> Fraction:
    """Left to right, × ÷ and percent before + and −."""
    values, weak = [numbers[0]], list[str]()
    for name, number in zip(operations, numbers[1:], strict=True):
        if name not in _STRONG:
            weak.append(name)
            values.append(number)
        elif name == "divided by":
            values[-1] /= number
        else:
            values[-1] *= number / (100 if name == "percent of" else 1)
    return values[0] + sum(
        (value if name == "plus" else -value for name, value in zip(weak, values[1:], strict=True)), Fraction(0)
    )


def _say(value: Fraction) -> str:
    """Digits with at most two decimals; `about` when that is not all of it."""
    rounded = round(value, 2)
    text = f"{float(rounded):,.2f}".rstrip("0").rstrip(".") if rounded.denominator != 1 else f"{rounded.numerator:,}"
    text = text.replace("-", "minus ")
    return text if rounded == value else f"about {text}"
