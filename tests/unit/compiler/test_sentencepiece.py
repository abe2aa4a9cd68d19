# SPDX-License-Identifier: Apache-2.0
"""SentencePiece vocabularies: the tokenizer made of them against SentencePiece's own rule."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from tokenizers import Tokenizer

from dpfedge.compiler.sentencepiece import merges_of, sentencepiece_parts
from dpfedge.errors import ModelError

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def vocabulary() -> tuple[list[str], list[int], list[float]]:
    """Tokens, types and scores as a converter writes them: specials, bytes, then pieces by falling score."""
    source = random.Random(3)
    letters = [SPACE, *"abcdé中"]
    pieces = set()
    while len(pieces) < 150:
        pieces.add("".join(source.choice(letters) for _ in range(source.randrange(2, 6))))
    order = sorted(pieces, key=lambda piece: (len(piece), piece))
    source.shuffle(order)
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *order, *letters]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(order) + len(letters))]
    return tokens, types, [0.0] * 259 + [-float(index) for index in range(len(order) + len(letters))]


def made(*, prefix: bool = False) -> Tokenizer:
    """The tokenizer of `vocabulary`."""
    tokens, types, scores = vocabulary()
    parts = sentencepiece_parts("m.gguf", tokens, types, scores, prefix=prefix, unknown=0)
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, **parts}
    return Tokenizer.from_str(json.dumps(data))


def joined(text: str) -> list[str]:
    """SentencePiece's rule: of all neighbours join those whose piece has the best score, the leftmost first."""
    tokens, types, scores = vocabulary()
    score = {token: scores[index] for index, token in enumerate(tokens) if types[index] == 1}
    parts = list(text.replace(" ", SPACE))
    while True:
        pairs = [(score[a + b], -place) for place, (a, b) in enumerate(pairwise(parts)) if a + b in score]
        if not pairs:
            break
        place = -max(pairs)[1]
        parts[place : place + 2] = ["".join(parts[place : place + 2])]
    found = []
    for part in parts:
        found += [part] if part in score else [f"<0x{byte:02X}>" for byte in part.encode()]
    return found


def test_sentencepiece_parts__best_score_first() -> None:
    """Random text gives the pieces of SentencePiece's rule; characters without a piece become bytes."""
    tokenizer, source = made(), random.Random(4)
    for _ in range(300):
        text = "".join(source.choice(" abcdé中xß🙂") for _ in range(source.randrange(1, 30)))
        encoded = tokenizer.encode(text)
        assert encoded.tokens == joined(text)
        assert tokenizer.decode(encoded.ids) == text


def test_sentencepiece_parts__prefix() -> None:
    """With a prefix, text begins with a space that decoding takes away again."""
    encoded = made(prefix=True).encode("abc d")

    assert encoded.tokens == joined(" abc d")
    assert made(prefix=True).decode(encoded.ids) == "abc d"
    assert made(prefix=True).decode(made(prefix=True).encode("  a").ids) == "  a"


def test_merges_of__order_and_types() -> None:
    """Every way to make a piece, better scores first; special and byte tokens take no part."""
    tokens, types = ["ab", "a", "b", "abb", "bb", "aba"], [1, 1, 1, 1, 1, 3]
    scores = [-2.0, -4.0, -5.0, -1.0, -3.0, 0.0]

    assert merges_of(tokens, types, scores) == [("ab", "b"), ("a", "bb"), ("a", "b"), ("b", "b")]


@pytest.mark.parametrize(("change", "text"), [
    ({"scores": [0.0]}, "m.gguf: vocabulary and scores do not fit; found 1; allowed 3"),
    ({"scores": [0.0, float("nan"), 0.0]}, "vocabulary and scores do not fit"),
    ({"scores": [0.0, "one", 0.0]}, "vocabulary and scores do not fit"),
    ({"tokens": ["<unk>", "a", "<0x00>"], "types": [2, 1, 6]}, "the vocabulary lacks bytes; found <0x01>, <0x02>"),
])  # fmt: skip
def test_sentencepiece_parts__gaps(change: dict[str, Any], text: str) -> None:
    """Scores that are no numbers and missing bytes are refused."""
    given: dict[str, Any] = {"tokens": ["<unk>", "a", "b"], "types": [2, 1, 1], "scores": [0.0, 0.0, 0.0], **change}

    with pytest.raises(ModelError, match=text):
        sentencepiece_parts("m.gguf", given["tokens"], given["types"], given["scores"], prefix=False, unknown=0)


def test_sentencepiece_parts__without_bytes() -> None:
    """A vocabulary without bytes has its unknown token for what it lacks."""
    parts = sentencepiece_parts("m.gguf", ["<unk>", "a"], [2, 1], [0.0, 0.0], prefix=False, unknown=0)

    assert parts["model"]["byte_fallback"] is False
    assert parts["model"]["unk_token"] == "<unk>"
