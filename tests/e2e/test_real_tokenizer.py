# SPDX-License-Identifier: Apache-2.0
"""The real SmolLM2 file's tokenizer against llama.cpp's ids of the same texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.compiler.tokenizer import tokenizer_json
from dpfedge.compiler.vocabulary import tables
from dpfedge.models import cached, pull
from dpfedge.stage.llm.tokenizer import Library, Tokenizer
from dpfedge.vocabulary import Vocabulary

MODEL = "smollm2-135m-instruct-q4_1"
GOLDEN = Path(__file__).parents[1] / "golden" / "decoders" / "smollm2_tokens.json"

pytestmark = pytest.mark.skipif(not cached(MODEL), reason="`dpfedge models pull` has not filled the cache")


def test_tokenizer__ids_of_llama_cpp() -> None:
    """By the library and on tables; prose, code, scripts, special tokens, odd white space, as its `/tokenize` says."""
    with open_gguf(pull(MODEL).path("SmolLM2-135M-Instruct.Q4_1.gguf")) as gguf:
        data = tokenizer_json(gguf)
    for engine in (Library(data), Vocabulary(tables(data))):
        tokenizer = Tokenizer(engine)
        assert [text for text, ids in json.loads(GOLDEN.read_text()) if tokenizer.encode(text) != ids] == []
