# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding on tables: hand-made ones, and what is none. tests/unit/compiler compares with the library."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from dpfedge import vocabulary
from dpfedge.errors import ModelError
from dpfedge.vocabulary import Vocabulary, byte_alphabet, pack_tables

# a b c d, ab bc abc abcd, one special token, one that was added
TOKENS = [b"a", b"b", b"c", b"d", b"ab", b"bc", b"abc", b"abcd", b"", b"<x>", b"\xc3", b"\xa9"]
PAIRS = {(0, 1): (1, 4), (1, 2): (0, 5), (4, 2): (2, 6), (0, 5): (3, 6), (6, 3): (4, 7)}
RUNS = {0: 0, ord("A"): 1, ord("z") + 1: 0, 0xE9: 1, 0xEA: 0, 0x660: 2, 0x66A: 0, 0x2003: 3, 0x2004: 0}


def header(digits: bool = False) -> dict[str, object]:
    known = {97: 0, 98: 1, 99: 2, 100: 3, 0xC3: 10, 0xA9: 11}
    first = [known.get(byte, -1) for byte in range(256)]
    return {"added": {"<s>": 8, "<s>>": 8, "<x>": 9}, "specials": ["<s>"], "bytes": first, "digits": digits}


@pytest.fixture
def toy() -> Vocabulary:
    """As mapped from a file."""
    return Vocabulary(memoryview(pack_tables(header(), PAIRS, TOKENS, RUNS)))


@pytest.mark.parametrize(("text", "ids"), [
    ("", []), ("a", [0]), ("ab", [4]), ("bc", [5]), ("abc", [6]), ("abcd", [7]), ("abd", [4, 3]), ("bcd", [5, 3]),
    ("aabb", [0, 4, 1]), ("abab", [4, 4]), ("xaby", [4]), ("a<s>b", [0, 8, 1]), ("<s>>ab<x>", [8, 4, 9]),
    ("é", [10, 11]),
])  # fmt: skip
def test_encode__lowest_rank_first_then_leftmost(toy: Vocabulary, text: str, ids: list[int]) -> None:
    """abc is a + bc, not ab + c: bc has the lower rank; what has no token is left out; twice gives the same."""
    assert toy.encode(text) == ids
    assert toy.encode(text) == ids


@pytest.mark.parametrize(("text", "words"), [
    ("Hi there, it's  me", ["Hi", " there", ",", " it", "'s", " ", " me"]),
    ("we'll a\n\n b", ["we", "'ll", " a", "\n\n", " b"]), ("x 12", ["x", " 12"]), ("né 12", ["né", " 12"]),
    ("é\u2003\u2003é\u0661\u0662!", ["é", "\u2003", "\u2003", "é", "\u0661\u0662", "!"]), ("🚗 \u00e9", ["🚗", " é"]),
])  # fmt: skip
def test_words__of_gpt2(toy: Vocabulary, text: str, words: list[str]) -> None:
    """A blank goes with the word behind it, white space but the last with itself; other scripts as ASCII."""
    assert toy.words(text) == words
    assert "".join(words) == text


def test_words__each_number_alone() -> None:
    """A blank before a number is a word too."""
    made = Vocabulary(pack_tables(header(digits=True), PAIRS, TOKENS, RUNS))
    assert made.words("x 12\u0661 é") == ["x", " ", "1", "2", "\u0661", " é"]


def test_bytes_of__tokens(toy: Vocabulary) -> None:
    """Special tokens have none, and so have ids of no token."""
    assert [toy.bytes_of(token) for token in range(-1, 13)] == [b"", *TOKENS, b""]
    assert (toy.specials, toy.size) == ({"<s>": 8}, 12)


def test_encode__remembers_so_much(toy: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many words nor a long one fills the memory; characters of many scripts do not, either."""
    monkeypatch.setattr(vocabulary, "_REMEMBERED", 130)
    for index in range(1000):
        toy.encode(f"a{chr(0x4E00 + index)}{index}")
        assert toy.encode("é") == [10, 11]
    toy.encode("ab" * 500)
    assert len(toy._known) <= 130
    assert len(toy._stand_ins) <= 130
    assert toy._stand_ins[97] == 97


def test_encode__a_long_word(toy: Vocabulary) -> None:
    """Its pairs are found in the order of their ranks, wherever they are."""
    assert toy.encode("abcd" * 3000 + "d") == [7] * 3000 + [3]


def _cut(data: bytes) -> bytes:
    return data[:-7]


def _without(data: bytes, name: str) -> bytes:
    size = 4 + int.from_bytes(data[:4], "little")
    fields = {key: value for key, value in json.loads(data[4:size]).items() if key != name}
    return data[:4] + json.dumps(fields).encode().ljust(size - 4) + data[size:]


@pytest.mark.parametrize("name", ["pairs", "tokens", "runs", "added", "specials", "bytes", "digits"])
def test_vocabulary__header_that_lacks_something(name: str) -> None:
    """It is named."""
    with pytest.raises(ModelError, match=f"no tables of a vocabulary.*KeyError: '{name}'"):
        Vocabulary(_without(pack_tables(header(), PAIRS, TOKENS, RUNS), name))


@pytest.mark.parametrize("data", [
    b"", b"\1\0\0\0{", b"\2\0\0\0[]", _cut(pack_tables(header(), PAIRS, TOKENS, RUNS)),
    pack_tables(header(), PAIRS, TOKENS, {}), pack_tables(header(), PAIRS, TOKENS, {5: 0}),
    pack_tables(header(), PAIRS, TOKENS, {0: 9}), pack_tables({**header(), "specials": ["y"]}, PAIRS, TOKENS, RUNS),
    pack_tables(header(), PAIRS, TOKENS, RUNS)[:300],
])  # fmt: skip
def test_vocabulary__that_is_none(data: bytes) -> None:
    """A broken asset is a fault of the package."""
    with pytest.raises(ModelError, match="no tables of a vocabulary"):
        Vocabulary(data)


def _headed(text: str) -> bytes:
    """The tables behind a header of any text."""
    good = pack_tables(header(), PAIRS, TOKENS, RUNS)
    return len(text).to_bytes(4, "little") + text.encode() + good[4 + int.from_bytes(good[:4], "little") :]


@pytest.mark.parametrize("value", [
    None, -1, 10**30, math.inf, math.nan, "", "x", [], [None], [math.inf] * 256, {"a": 12}, {"a": -1}, {"a": math.inf},
    [0] * 255, [12] * 256, {"a": None},
], ids=lambda value: f"{value!r:.20}")  # fmt: skip
@pytest.mark.parametrize("name", ["pairs", "tokens", "runs", "added", "bytes"])
def test_vocabulary__header_of_anything(name: str, value: object) -> None:
    """Whatever JSON can say, the package is named; nothing fails later, when somebody has said something."""
    good = pack_tables(header(), PAIRS, TOKENS, RUNS)
    fields = json.loads(good[4 : 4 + int.from_bytes(good[:4], "little")])
    with pytest.raises(ModelError, match="no tables of a vocabulary"):
        Vocabulary(_headed(json.dumps({**fields, name: value})))


def test_vocabulary__header_without_end() -> None:
    """As deep as it is long."""
    with pytest.raises(ModelError, match=r"no tables of a vocabulary.*RecursionError"):
        Vocabulary(_headed("[" * 100_000))


def test_vocabulary__ids_of_no_token() -> None:
    """A model has no row for one that two others become."""
    with pytest.raises(ModelError, match="ids from 8 to 12 of 12 tokens"):
        Vocabulary(pack_tables(header(), {**PAIRS, (2, 3): (5, 12)}, TOKENS, RUNS))


def test_vocabulary__one_bit_that_changed() -> None:
    """Wherever it is, the package is named, or each text still becomes ids of tokens."""
    good = pack_tables(header(), PAIRS, TOKENS, RUNS)
    used = 0
    for place in range(8 * len(good)):
        data = bytearray(good)
        data[place // 8] ^= 1 << place % 8
        try:
            made = Vocabulary(bytes(data))
        except ModelError:
            continue
        used += 1
        ids = made.encode("abcd é ab<s>1\u0661\u2003x<x>abab")
        assert all(0 <= token < made.size for token in ids)
        assert all(len(made.bytes_of(token)) <= len(good) for token in range(-1, 13))
    assert used > 300


def test_encode__pairs_that_become_each_other() -> None:
    """Each joining leaves one id less: a circle ends."""
    pairs = {(0, 0): (0, 1), (1, 1): (0, 0), (0, 1): (0, 0), (1, 0): (0, 1)}
    made = Vocabulary(pack_tables({**header(), "bytes": [0] * 256, "added": {}, "specials": []}, pairs, TOKENS, RUNS))
    assert len(made.encode("a" * 1000)) == 1


def test_byte_alphabet__of_gpt2() -> None:
    """Each byte has one stand-in; those of printable ASCII are themselves."""
    found = byte_alphabet()
    assert sorted(found.values()) == list(range(256))
    assert (found["a"], found["Ġ"], found["Ċ"]) == (97, 32, 10)


def test_vocabulary__needs_no_library() -> None:
    """A start that has tables imports none."""
    code = "import sys, dpfedge.vocabulary, dpfedge.stage.llm.tokenizer; sys.exit('tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
