# SPDX-License-Identifier: Apache-2.0
"""Written text in, text that espeak-ng reads as a person would out; numbers themselves are espeak-ng's work."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

__all__ = ["normalise", "speakable"]


def _any(words: Iterable[str]) -> str:
    """An alternation that prefers the longest word."""
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_SPACE = re.compile(r"\s+")
_WORDS = {
    "dr": "Doctor", "mr": "Mister", "mrs": "Missus", "ms": "Miss", "prof": "Professor", "st": "Saint", "vs": "versus",
    "e.g": "for example", "i.e": "that is", "etc": "et cetera", "approx": "approximately",
}  # fmt: skip
_ABBREVIATION = re.compile(rf"\b({_any(_WORDS)})\.(?=\s|,|$)", re.IGNORECASE)
_UNITS = {
    "km/h": "kilometres per hour", "mph": "miles per hour", "kWh": "kilowatt hours", "kW": "kilowatts",
    "km": "kilometres",
    "cm": "centimetres", "mm": "millimetres", "kg": "kilograms", "°C": "degrees Celsius", "°F": "degrees Fahrenheit",
    "°": "degrees", "psi": "P S I", "rpm": "revolutions per minute",
}  # fmt: skip
_UNIT = re.compile(rf"(?<=\d)\s?({_any(_UNITS)})(?![\w/])")
_COINS = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "pence")}
_MONEY = re.compile(r"([$€£])\s?(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d\d))?(?![\d.]*\d)")
_SIGNS = {"&": " and ", "+": " plus ", "=": " equals ", "×": " times ", "÷": " divided by ", "@": " at "}
_SIGN = re.compile(_any(_SIGNS))
# Symbols that espeak-ng would name aloud: pictures (So), modifiers (Sk), joiners (Cf), private and unassigned ones.
_UNSPOKEN = frozenset(("So", "Sk", "Cf", "Cc", "Cs", "Co", "Cn", "Me"))
_KEPT = frozenset("°\n\t ")
_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_ABBREVIATION, lambda match: _WORDS[match[1].lower()]),
    (_MONEY, lambda match: _money(match)),
    (_UNIT, lambda match: f" {_UNITS[match[1]]}"),
    (_SIGN, lambda match: _SIGNS[match[0]]),
)


def _money(match: re.Match[str]) -> str:
    whole, part = _COINS[match[1]]
    said = f"{match[2]} {whole}{'' if match[2] == '1' else 's'}"
    if not match[3] or match[3] == "00":
        return said
    return f"{said} {match[3].lstrip('0')}{'' if whole != 'pound' else f' {part}'}"


def _clean(text: str) -> str:
    shown = (char if char in _KEPT or unicodedata.category(char) not in _UNSPOKEN else " " for char in text)
    return _SPACE.sub(" ", "".join(shown)).strip()


def normalise(text: str) -> str:
    """`text` on one line without pictures and control characters; abbreviations, money, units and signs in words."""
    text = _clean(text)
    for pattern, rule in _RULES:
        text = pattern.sub(rule, text)
    return _SPACE.sub(" ", text).strip()


def speakable(text: str) -> bool:
    """Whether any letter or digit is left to say."""
    return any(char.isalnum() for char in text)
