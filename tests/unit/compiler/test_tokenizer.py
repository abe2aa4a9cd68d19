# SPDX-License-Identifier: Apache-2.0
"""The tokenizer made from a GGUF's vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_gguf import llama_file
from tokenizers import Tokenizer

from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.compiler.tokenizer import chat_template, special_ids, tokenizer_json
from dpfedge.errors import ModelError, Unsupported


def test_tokenizer_json__merges_and_special_tokens(tmp_path: Path) -> None:
    """Merges apply, special tokens are cut out first, ids are the file's."""
    made = Tokenizer.from_str(tokenizer_json(open_gguf(llama_file(tmp_path))).decode())

    assert made.encode("ab<|end|>b a").ids == [3, 0, 2, 4, 1]
    assert made.decode([3, 0, 2], skip_special_tokens=False) == "ab<|end|>b"


def test_tokenizer_json__same_bytes(tmp_path: Path) -> None:
    """The same file gives the same bytes."""
    path = llama_file(tmp_path)

    assert tokenizer_json(open_gguf(path)) == tokenizer_json(open_gguf(path))


@pytest.mark.parametrize(("change", "text"), [
    ({"tokenizer.ggml.model": "t5"}, "tokenizer cannot be imported; found t5; allowed gpt2, llama"),
    ({"tokenizer.ggml.pre": "tekken"}, "split in an unknown way; found tekken; allowed gpt-2, smollm, llama-bpe"),
    ({"tokenizer.ggml.pre": None}, "split in an unknown way; found nothing; .* convert the model again"),
    ({"tokenizer.ggml.pre": 3}, "split in an unknown way; found 3"),
])  # fmt: skip
def test_tokenizer_json__unknown_kind(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    """A tokenizer that would give other ids is refused, not approximated."""
    with pytest.raises(Unsupported, match=text):
        tokenizer_json(open_gguf(llama_file(tmp_path, **change)))


TEXT = "It's WE'LL 1234  x\n\n é中!?\ty"


@pytest.mark.parametrize(("pre", "words"), [
    ("gpt-2", ["It", "'s", " WE", "'", "LL", " 1234", " ", " x", "\n\n", " é中", "!?", "\t", "y"]),
    ("smollm", ["It", "'s", " WE", "'", "LL", " ", "1", "2", "3", "4", " ", " x", "\n\n", " é中", "!?", "\t", "y"]),
    ("llama-bpe", ["It", "'s", " WE", "'LL", " ", "123", "4", " ", " x", "\n\n", " é中", "!?", "\ty"]),
    ("qwen2", ["It", "'s", " WE", "'LL", " ", "1", "2", "3", "4", " ", " x", "\n\n", " é中", "!?", "\ty"]),
])  # fmt: skip
def test_tokenizer_json__words(tmp_path: Path, pre: str, words: list[str]) -> None:
    """Each pre-tokeniser cuts text into its own words, as llama.cpp does."""
    path = llama_file(tmp_path, **{"tokenizer.ggml.pre": pre})
    made = Tokenizer.from_str(tokenizer_json(open_gguf(path)).decode())
    places = [place for _, place in made.pre_tokenizer.pre_tokenize_str(TEXT)]

    assert [TEXT[start:end] for start, end in places] == words


def test_tokenizer_json__normal_form(tmp_path: Path) -> None:
    """Qwen's text is composed first, as in its own tokenizer; the others leave it as it is."""
    found = {}
    for pre in ("qwen2", "llama-bpe"):
        path = llama_file(tmp_path, **{"tokenizer.ggml.pre": pre})
        found[pre] = Tokenizer.from_str(tokenizer_json(open_gguf(path)).decode()).normalizer

    assert found["llama-bpe"] is None
    assert found["qwen2"].normalize_str("e\u0301") == "é"


def test_tokenizer_json__whole_words(tmp_path: Path) -> None:
    """Llama 3 looks a word up before merging: "ba" is a token that no merge makes."""
    change = {"tokenizer.ggml.tokens": ["<|end|>", "a", "b", "ab", "ba"]}
    found = {}
    for pre in ("gpt-2", "llama-bpe"):
        path = llama_file(tmp_path, **{**change, "tokenizer.ggml.pre": pre})
        found[pre] = Tokenizer.from_str(tokenizer_json(open_gguf(path)).decode()).encode("ba").ids

    assert found == {"gpt-2": [2, 1], "llama-bpe": [4]}


PIECES = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.pre": None,
    "tokenizer.ggml.tokens": ["<unk>", "<bos>", "<end_of_turn>", "  ", "\u2581", "a", "b", "ab", "\u2581ab"],
    "tokenizer.ggml.token_type": [2, 3, 3, 4, 1, 1, 1, 1, 1],
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, 0.0, -9.0, -8.0, -7.0, -1.0, -2.0],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.unknown_token_id": 0,
}


@pytest.mark.parametrize(("prefix", "ids"), [(False, [2, 7, 8, 3, 7, 0]), (True, [2, 8, 8, 3, 8, 0])])
def test_tokenizer_json__pieces(tmp_path: Path, prefix: bool, ids: list[int]) -> None:
    """SentencePiece: scores decide, special tokens and runs of spaces are cut out, prefixes follow each of them."""
    path = llama_file(tmp_path, **PIECES, **{"tokenizer.ggml.add_space_prefix": prefix})
    made = Tokenizer.from_str(tokenizer_json(open_gguf(path)).decode())

    assert made.encode("<end_of_turn>ab ab  abx").ids == ids
    assert made.decode(made.encode("ab ab").ids) == "ab ab"
    assert special_ids(open_gguf(path)) == {"bos": 1, "eos": [0, 2], "pad": None, "add_bos": True}


def test_tokenizer_json__same_token_twice(tmp_path: Path) -> None:
    """Two ids with one text cannot be told apart."""
    path = llama_file(tmp_path, **{"tokenizer.ggml.tokens": ["<|end|>", "a", "b", "ab", "a"]})

    with pytest.raises(ModelError, match="two tokens are the same; found 'a'"):
        tokenizer_json(open_gguf(path))


def test_chat_template__missing(tmp_path: Path) -> None:
    """A base model is refused with a word of what to use."""
    path = llama_file(tmp_path, **{"tokenizer.chat_template": None})

    with pytest.raises(
        ModelError, match=r"has no chat template, so it cannot answer messages; .* instruction-tuned file"
    ):
        chat_template(open_gguf(path))
    assert chat_template(open_gguf(llama_file(tmp_path))) == "{{ messages }}"


def test_special_ids__ends(tmp_path: Path) -> None:
    """Ends are a list; an id outside the vocabulary is refused."""
    assert special_ids(open_gguf(llama_file(tmp_path))) == {"bos": None, "eos": [0], "pad": None, "add_bos": False}
    with pytest.raises(ModelError, match="eos token is outside the vocabulary; found 9"):
        special_ids(open_gguf(llama_file(tmp_path, **{"tokenizer.ggml.eos_token_id": 9})))


@pytest.mark.parametrize(("key", "value", "text"), [
    ("tokenizer.ggml.merges", ["ab"], r"merges\[0\]: not a token or pair of tokens; found 'ab'"),
    ("tokenizer.ggml.merges", ["a b", "b a"], r"merges\[1\]: a merge of texts that are no tokens; found 'b a'"),
    ("tokenizer.ggml.tokens", [1, 2], r"tokens\[0\]: not a token or pair of tokens; found 1"),
    ("tokenizer.ggml.eos_token_id", "two", "eos_token_id is missing or of another type; found str; allowed int"),
])  # fmt: skip
def test_tokenizer__wrong_types(tmp_path: Path, key: str, value: Any, text: str) -> None:
    """Metadata of another type than the format says is refused, never followed."""
    gguf = open_gguf(llama_file(tmp_path, **{key: value}))

    with pytest.raises(ModelError, match=text):
        (special_ids(gguf), tokenizer_json(gguf))
