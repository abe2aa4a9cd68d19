# SPDX-License-Identifier: Apache-2.0
"""The tokenizer made from a GGUF's vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_gguf import llama_file
from tokenizers import Tokenizer

from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.compiler.tokenizer import special_ids, tokenizer_json
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


@pytest.mark.parametrize("change", [{"tokenizer.ggml.model": "llama"}, {"tokenizer.ggml.pre": "unheard-of"}])
def test_tokenizer_json__unknown_kind(tmp_path: Path, change: dict[str, str]) -> None:
    """A tokenizer that would give other ids is refused, not approximated."""
    with pytest.raises(Unsupported, match="tokenizer cannot be imported"):
        tokenizer_json(open_gguf(llama_file(tmp_path, **change)))


def test_special_ids__ends(tmp_path: Path) -> None:
    """Ends are a list; an id outside the vocabulary is refused."""
    assert special_ids(open_gguf(llama_file(tmp_path))) == {"bos": None, "eos": [0], "pad": None, "add_bos": False}
    with pytest.raises(ModelError, match="eos token is outside the vocabulary; found 9"):
        special_ids(open_gguf(llama_file(tmp_path, **{"tokenizer.ggml.eos_token_id": 9})))


@pytest.mark.parametrize(("key", "value", "text"), [
    ("tokenizer.ggml.merges", ["ab"], r"merges\[0\]: not a token or pair of tokens; found 'ab'"),
    ("tokenizer.ggml.tokens", [1, 2], r"tokens\[0\]: not a token or pair of tokens; found 1"),
    ("tokenizer.ggml.eos_token_id", "two", "eos_token_id is missing or of another type; found str; allowed int"),
    ("tokenizer.ggml.pre", 3, "pre is missing or of another type; found int; allowed str"),
])  # fmt: skip
def test_tokenizer__wrong_types(tmp_path: Path, key: str, value: Any, text: str) -> None:
    """Metadata of another type than the format says is refused, never followed."""
    gguf = open_gguf(llama_file(tmp_path, **{key: value}))

    with pytest.raises(ModelError, match=text):
        (special_ids(gguf), tokenizer_json(gguf))
