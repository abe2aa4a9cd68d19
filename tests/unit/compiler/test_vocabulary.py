# SPDX-License-Identifier: Apache-2.0
"""Vocabularies that become tables, compared with the library, and those that do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dpfedge.compiler.vocabulary import Untabled, tables, vocabulary_tables
from dpfedge.vocabulary import Vocabulary, byte_alphabet

SPECIALS = ("<|start|>", "<|end|>", "<|end|>more")
WORDS = [
    "th",
    "the",
    "Ġth",
    "Ġthe",
    "er",
    "re",
    "ther",
    "Ġc",
    "Ġca",
    "Ġcar",
    "ĠĠ",
    "ĊĊ",
    "Ã©",
    "Ġ1",
    "'s",
    "aa",
    "aaaa",
]
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def made(*, digits: bool = True, lacking: str = "") -> Tokenizer:
    """A small vocabulary with merges whose parts overlap."""
    alphabet = sorted(set(byte_alphabet()) - set(lacking))
    vocabulary = {text: index for index, text in enumerate([*SPECIALS, *alphabet, *WORDS])}
    merges = [(word[:cut], word[cut:]) for word in WORDS for cut in range(1, len(word))]
    known = [pair for pair in merges if all(part in vocabulary for part in pair)]
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=known))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), level]) if digits else level
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(SPECIALS))
    return inner


LIBRARY = {digits: made(digits=digits) for digits in (False, True)}
OURS = {digits: Vocabulary(tables(inner.to_str().encode())) for digits, inner in LIBRARY.items()}
TEXT = st.text(max_size=40) | st.lists(
    st.sampled_from([*SPECIALS, "the", " ther", "'ll", "  ", "\n", "1", "é", "car", "aaaaa", "\u2003", "🚗", "٣", "Ⅷ"]),
    max_size=12,
).map("".join)


@given(TEXT, st.booleans())
def test_tables__ids_of_the_library(text: str, digits: bool) -> None:
    """For any text, with special tokens in it too."""
    assert OURS[digits].encode(text) == LIBRARY[digits].encode(text, add_special_tokens=False).ids


@given(st.lists(st.integers(0, 280)))
def test_tables__text_of_the_library(tokens: list[int]) -> None:
    """Also where it is no UTF-8."""
    said = b"".join(map(OURS[True].bytes_of, tokens)).decode("utf-8", "replace")
    assert said == LIBRARY[True].decode(tokens)


def test_tables__numbers_of_a_newer_unicode() -> None:
    """`Digits` knows more of them than patterns do: each one is a word, and so is the blank before it."""
    every = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    parts = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str("".join(every))
    numbers = "".join(text for text, _ in parts[1::2])
    assert "\U00011de0" in numbers  # a digit since Unicode 17
    text = "".join(f"x{char} {char}{char}! {char}'s" for char in numbers)
    wanted = LIBRARY[True].pre_tokenizer.pre_tokenize_str(text)
    assert OURS[True].words(text) == [text[first:last] for _, (first, last) in wanted]


def test_tables__bytes_that_are_no_tokens() -> None:
    """They are left out, as by the library."""
    inner = made(lacking="ÃÅ")
    ours = Vocabulary(tables(inner.to_str().encode()))
    for text in ("é", "aéa", "Ő the"):
        assert ours.encode(text) == inner.encode(text, add_special_tokens=False).ids


CHANGES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda fields: fields.update(pre_tokenizer=None), "words are not GPT-2's"),
    (lambda fields: fields.update(pre_tokenizer={**LEVEL, "add_prefix_space": True}), "words are not GPT-2's"),
    (lambda fields: fields.update(pre_tokenizer={**LEVEL, "use_regex": False}), "words are not GPT-2's"),
    (
        lambda fields: fields.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [LEVEL, DIGITS]}),
        "words are not",
    ),
    (lambda fields: fields.update(normalizer={"type": "NFC"}), "normalizer is more"),
    (lambda fields: fields.update(decoder={"type": "Fuse"}), "decoder is more"),
    (lambda fields: fields["model"].update(ignore_merges=True), "ignore_merges is more"),
    (lambda fields: fields["model"].update(byte_fallback=True), "byte_fallback is more"),
    (lambda fields: fields["model"].update(dropout=0.1), "dropout is more"),
    (lambda fields: fields["added_tokens"][0].update(lstrip=True), "added_tokens is more"),
    (lambda fields: fields["added_tokens"][0].update(normalized=True), "added_tokens is more"),
]


@pytest.mark.parametrize(("change", "why"), CHANGES)
def test_tables__more_than_tables_can_do(change: Callable[[dict[str, Any]], object], why: str) -> None:
    """The package keeps its tokenizer.json alone, and says why."""
    fields = json.loads(LIBRARY[True].to_str())
    change(fields)
    with pytest.raises(Untabled, match=why):
        tables(json.dumps(fields).encode())
    found, (choice, told) = vocabulary_tables(json.dumps(fields).encode())
    assert (found, choice) == ({}, "vocabulary=tokenizer.json")
    assert why in told


def test_tables__file_that_is_none() -> None:
    """As `tokenizer.json cannot be read` is the stage's to say, the compiler only leaves the tables out."""
    with pytest.raises(Untabled, match="cannot be read"):
        tables(b"{}")


def test_vocabulary_tables__asset_and_decision() -> None:
    """The same bytes each time."""
    data = LIBRARY[True].to_str().encode()
    found, (choice, _) = vocabulary_tables(data)
    assert choice == "vocabulary=tables"
    assert found == vocabulary_tables(data)[0]
    assert Vocabulary(found["vocabulary.tables"]).specials == {text: index for index, text in enumerate(SPECIALS)}
