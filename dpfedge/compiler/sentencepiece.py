# SPDX-License-Identifier: Apache-2.0
"""A SentencePiece vocabulary with scores in, the parts of a Hugging Face tokenizer that gives the same ids out.

SentencePiece joins the neighbours whose joined piece has the best score; a list of merges, best piece first, does the
same. Text is not split before that. Pieces of one score are merged in an order of their own, as in Hugging Face's
conversions; trained vocabularies have no two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpfedge.errors import ModelError

__all__ = ["merges_of", "sentencepiece_parts"]

NORMAL, UNUSED, BYTE = 1, 5, 6
"""Types of a GGUF's tokens, those that matter here."""
_SPACE = "\u2581"


def sentencepiece_parts(
    where: str,
    tokens: Sequence[str],
    types: Sequence[int],
    scores: Sequence[float],
    *,
    prefix: bool,
    unknown: int | None,
) -> Mapping[str, Any]:
    """`normalizer`, `pre_tokenizer`, `decoder` and `model` of a tokenizer.json; ModelError for a vocabulary with gaps.

    `prefix` puts a space before text that follows a special token or nothing, and takes it away when decoding.
    """
    if len(scores) != len(tokens) or not all(isinstance(score, float) and math.isfinite(score) for score in scores):
        raise ModelError("vocabulary and scores do not fit", where=where, found=len(scores), allowed=len(tokens))
    found = {token for token, kind in zip(tokens, types, strict=True) if kind == BYTE}
    missing = [name for name in (f"<0x{byte:02X}>" for byte in range(256)) if name not in found]
    if found and missing:
        raise ModelError("the vocabulary lacks bytes", where=where, found=", ".join(missing[:4]), allowed="all 256")
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    before = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _SPACE}, replace]}
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": before if prefix else replace,
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if unknown is None else tokens[unknown],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": bool(found),
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": merges_of(tokens, types, scores),
        },
    }


def merges_of(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a piece, the best-scored piece first."""
    ids = {token: index for index, token in enumerate(tokens) if types[index] in (NORMAL, UNUSED)}
    pairs = []
    for token, index in ids.items():
        cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        parts = [(ids[left], ids[right]) for left, right in cuts if left in ids and right in ids]
        pairs += [(-scores[index], index, left, right) for left, right in sorted(parts)]
    pairs.sort(key=lambda pair: pair[0])
    return [(tokens[left], tokens[right]) for _, _, left, right in pairs]
