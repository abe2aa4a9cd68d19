# SPDX-License-Identifier: Apache-2.0
"""A `tokenizer.json` in, tables of `dpfedge.vocabulary` out, or why there are none; it imports no model.

That the tables give the library's ids is shown in three steps: the file asks for nothing but what `Vocabulary` does
(`_check`); its classes of characters are the library's own, and words around the ends of each are compared; so are
the ids of the text of every token, alone and between others, and of random text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

from dpfedge.compiler.decoder.assets import read_tokenizer
from dpfedge.errors import ModelError
from dpfedge.vocabulary import Vocabulary, byte_alphabet, pack_tables

__all__ = ["Untabled", "tables", "vocabulary_tables"]

_PROPERTIES = {"letters": r"\p{L}", "numbers": r"\p{N}", "spaces": r"\s"}
_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}
_PLAIN = ("single_word", "lstrip", "rstrip")
_RANDOM = 1000  # texts
_AT_ONCE = 50  # characters
_CHARACTERS = 0x40000  # planes 0 to 3; the others have no letters, numbers and spaces


class Untabled(Exception):
    """Why a vocabulary has no tables."""


def vocabulary_tables(data: bytes) -> tuple[dict[str, bytes], tuple[str, str]]:
    """The asset `vocabulary.tables` of a decoder with this tokenizer.json, or none; what was decided."""
    try:
        found = tables(data)
    except Untabled as error:
        return {}, ("vocabulary=tokenizer.json", f"no tables are proven to give the same ids: {error}")
    return {"vocabulary.tables": found}, ("vocabulary=tables", "a byte-level vocabulary: a start parses nothing")


def tables(data: bytes) -> bytes:
    """The tables that give the ids of the library for this tokenizer.json; Untabled where that is not certain."""
    try:
        library: Tokenizer = read_tokenizer(data, "tokenizer.json")
    except ModelError as error:
        raise Untabled(f"it cannot be read: {error.__cause__}"[:200]) from error
    fields = json.loads(library.to_str())  # with everything that the file leaves to the library
    digits = _check(fields)
    _check_words(digits)
    packed = _packed(fields, library, digits)
    _check_ids(library, Vocabulary(packed), digits)
    return packed


def _check(fields: Mapping[str, Any]) -> bool:
    """Whether each number is a word; Untabled names what the file asks for beyond the tables."""
    model, steps = fields["model"], fields["pre_tokenizer"] or {}
    steps = steps["pretokenizers"] if steps.get("type") == "Sequence" else [steps]
    words = [{key: value for key, value in step.items() if key != "trim_offsets"} for step in steps]
    if words not in ([_LEVEL], [_DIGITS, _LEVEL]):
        raise Untabled("its words are not GPT-2's")
    wanted = {
        **{name: not fields[name] for name in ("normalizer", "truncation", "padding")},
        "decoder": (fields["decoder"] or {}).get("type") == "ByteLevel", "model": model["type"] == "BPE",
        "added_tokens": not any(token[name] for token in fields["added_tokens"] for name in _PLAIN)
        and len({token["normalized"] for token in fields["added_tokens"]}) < 2,
        **{name: not model.get(name) for name in ("dropout", "unk_token", "continuing_subword_prefix",
                                                  "end_of_word_suffix", "byte_fallback", "ignore_merges")},
    }  # fmt: skip
    if wrong := [name for name, plain in wanted.items() if not plain]:
        raise Untabled(f"{wrong[0]} is more than tables can do")
    return len(words) > 1


@lru_cache(maxsize=2)
def _classes(digits: bool) -> dict[str, list[tuple[int, int]]]:
    """Class → its (first, last) characters, as the library knows them; `digits`: numbers are those of `Digits`.

    `Digits` knows numbers of a newer Unicode than patterns do; each is a word, whatever patterns take it for.
    """
    every = "".join(chr(number) for number in range(_CHARACTERS) if not _surrogate(number))
    found = {name: _ranges(every, pattern) for name, pattern in _PROPERTIES.items()}
    if digits:  # the first character is none, so of the parts each second one is a run of them
        parts = [place for _, place in Digits(individual_digits=False).pre_tokenize_str(every)]
        found["numbers"] = _characters(every, parts[1::2])
    return found


def _ranges(every: str, pattern: str) -> list[tuple[int, int]]:
    """What is left of all characters by those that the library finds outside of a class."""
    outside = [place for _, place in Split(Regex(pattern), "removed").pre_tokenize_str(every)]
    edges = [0, *(edge for place in outside for edge in place), len(every)]
    return _characters(every, zip(edges[::2], edges[1::2], strict=True))


def _characters(every: str, places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(ord(every[first]), ord(every[last - 1])) for first, last in places if first < last]


def _surrogate(number: int) -> bool:
    return 0xD800 <= number < 0xE000


def _runs(digits: bool) -> dict[int, int]:
    """First character → class of each run, as `Vocabulary` numbers them: 0 is none."""
    runs = {0: 0}
    for kind, ranges in enumerate(_classes(digits).values(), 1):
        for first, last in ranges:
            runs.setdefault(last + 1, 0)
            runs[first] = kind
    return dict(sorted(runs.items()))


@lru_cache(maxsize=2)
def _check_words(digits: bool) -> None:
    """Compare the words around each end of a range, and around all characters of short codes, with the library's."""
    steps = [Digits(individual_digits=True)] if digits else []
    library = Sequence([*steps, ByteLevel(add_prefix_space=False)])
    header = {"digits": digits, "added": {}, "specials": [], "bytes": [-1] * 256}
    ours = Vocabulary(pack_tables(header, {}, [], _runs(digits)))
    classes = [ranges for kind in (False, digits) for ranges in _classes(kind).values()]
    known = {number for ranges in classes for first, last in ranges for number in range(first - 1, last + 2)}
    chars = [
        chr(number) for number in sorted(known | set(range(0x3000))) if number >= 0 and not 0xD800 <= number < 0xE000
    ]
    for start in range(0, len(chars), _AT_ONCE):
        text = "".join(f"x{char} {char}'s{char}1{char}\n {char}." for char in chars[start : start + _AT_ONCE])
        wanted = [last - first for _, (first, last) in library.pre_tokenize_str(text)]
        if [len(word) for word in ours.words(text)] != wanted:
            raise Untabled(f"words differ around U+{ord(chars[start]):04X}")


def _packed(fields: Mapping[str, Any], library: Tokenizer, digits: bool) -> bytes:
    ids, alphabet = fields["model"]["vocab"], byte_alphabet()
    pairs = {}
    for rank, merge in enumerate(fields["model"]["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        pairs[ids[left], ids[right]] = (rank, ids[left + right])
    specials = [token["content"] for token in fields["added_tokens"] if token["special"]]
    header = {
        "digits": digits, "added": {token["content"]: token["id"] for token in fields["added_tokens"]},
        "specials": specials, "bytes": [ids.get(char, -1) for char in sorted(alphabet, key=alphabet.__getitem__)],
    }  # fmt: skip
    count = library.get_vocab_size(with_added_tokens=True)
    texts = [_bytes(library.id_to_token(id), specials, alphabet) for id in range(count)]
    return pack_tables(header, pairs, texts, _runs(digits))


def _bytes(text: str | None, specials: list[str], alphabet: Mapping[str, int]) -> bytes:
    if text is None or text in specials:
        return b""
    known = all(char in alphabet for char in text)
    return bytes(alphabet[char] for char in text) if known else text.encode()


def _check_ids(library: Tokenizer, ours: Vocabulary, digits: bool) -> None:
    """Compare ids of every token's text and of random text, and the bytes of every token, with the library's."""
    said = [ours.bytes_of(token).decode("utf-8", "replace") for token in range(ours.size)]
    if ours.size != library.get_vocab_size() or said != [library.decode([token]) for token in range(ours.size)]:
        raise Untabled("the bytes of tokens differ")
    chance = random.Random(1)
    classes = [chr(chance.randint(*chance.choice(ranges))) for ranges in _classes(digits).values() for _ in range(200)]
    parts = [*said, *classes, *ours.specials, *"  \t\n\r'.,:0123", "'ll", "'s", " \u00e9", "\U0001f697"]
    texts = [*said, *("".join(chance.choices(parts, k=chance.randint(1, 60))) for _ in range(_RANDOM))]
    for text, found in zip(texts, library.encode_batch(texts, add_special_tokens=False), strict=True):
        if ours.encode(text) != found.ids:
            raise Untabled(f"ids differ for {text!r:.60}")
