# SPDX-License-Identifier: Apache-2.0
"""Text ↔ tokens, whole and piece by piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Inner

from dpfedge.compiler.vocabulary import tables
from dpfedge.errors import ModelError
from dpfedge.stage.llm.tokenizer import Detokeniser, Library, Tokenizer
from dpfedge.vocabulary import Vocabulary

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def piecewise(detokeniser: Detokeniser, tokens: list[int]) -> list[str]:
    return [*(detokeniser.push(token) for token in tokens), detokeniser.finish()]


def test_detokeniser__characters_spread_over_tokens(assets: dict[str, bytes]) -> None:
    """Each byte is a token here; no delta shows half a character."""
    tokenizer = Tokenizer(Library(assets["tokenizer.json"]))
    text = "🚗 日本 👨‍👩‍👧 ü"
    deltas = piecewise(tokenizer.detokeniser(), tokenizer.encode(text))
    assert "".join(deltas) == text
    assert not any("\ufffd" in delta for delta in deltas)


@given(st.lists(st.integers(0, 258 + 12), max_size=60))
def test_detokeniser__any_tokens_equal_decoding_them_at_once(tokens: list[int]) -> None:
    """Also bytes that are no UTF-8, special tokens, and an answer cut inside a character."""
    tokenizer = _TOY
    assert "".join(piecewise(tokenizer.detokeniser(), tokens)) == tokenizer.decode(tokens)


@given(st.lists(st.integers(0, 5), max_size=20))
def test_detokeniser__spaces_of_pieces_stay(tokens: list[int]) -> None:
    """Vocabularies that are not byte-level go through a window; words do not run together."""
    assert "".join(piecewise(_SPACED.detokeniser(), tokens)) == _SPACED.decode(tokens)


def test_tokenizer__special_tokens_are_known(assets: dict[str, bytes]) -> None:
    """Their texts become tokens, and they are no text when decoded."""
    tokenizer = Tokenizer(Library(assets["tokenizer.json"]))
    assert tokenizer.specials == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    tokens = tokenizer.encode("<|im_start|>user")
    assert tokens[0] == 1
    assert tokenizer.decode(tokens) == "user"


def test_tokenizer__file_that_is_none() -> None:
    """The asset is named."""
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        Tokenizer(Library(b"{}"))


def _toy_json() -> bytes:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate([*SPECIALS, *alphabet])}
    inner = Inner(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(SPECIALS))
    inner.add_tokens([AddedToken(text, normalized=False) for text in (" it", " is", "é", "日本")])
    inner.add_tokens([AddedToken(f" w{index}", normalized=False) for index in range(10)])
    return inner.to_str().encode()


def _spaced() -> Tokenizer:
    """Pieces whose leading space vanishes when they are decoded alone."""
    pieces = ["▁the", "▁car", "▁", "s", "stop", "▁stop"]
    inner = Inner(models.BPE(vocab={piece: index for index, piece in enumerate(pieces)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    return Tokenizer(Library(inner.to_str().encode()))


_TOY = Tokenizer(Library(_toy_json()))
_SPACED = _spaced()


@given(st.text(max_size=40), st.lists(st.integers(0, 258 + 12), max_size=40))
def test_tokenizer__on_tables_as_by_the_library(text: str, tokens: list[int]) -> None:
    """Whatever is said, and whatever the model says."""
    assert _TABLED.encode(text) == _TOY.encode(text)
    assert _TABLED.decode(tokens) == _TOY.decode(tokens)
    assert piecewise(_TABLED.detokeniser(), tokens) == piecewise(_TOY.detokeniser(), tokens)
    assert (_TABLED.specials, _TABLED.size) == (_TOY.specials, _TOY.size)


_TABLED = Tokenizer(Vocabulary(tables(_toy_json())))
