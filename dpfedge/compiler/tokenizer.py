# SPDX-License-Identifier: Apache-2.0
"""A GGUF's vocabulary in, a Hugging Face `tokenizer.json` out; it tokenises nothing itself.

`tokenizer.ggml.model` says the kind: `gpt2` is byte-level BPE with merges, whose pre-tokeniser `tokenizer.ggml.pre`
names as in llama.cpp's `llama-vocab.cpp`; `llama` is SentencePiece with scores. Any other is refused by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dpfedge.compiler.importer.gguf import Gguf
from dpfedge.compiler.sentencepiece import sentencepiece_parts
from dpfedge.errors import ModelError, Unsupported

__all__ = ["chat_template", "special_ids", "tokenizer_json"]

_UNKNOWN, _CONTROL, _USER = 2, 3, 4  # token types of GGUF that are matched before the text is split
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def _byte_level(regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def _split(pattern: str) -> list[dict[str, Any]]:
    return [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        _byte_level(False),
    ]


_PRE: Mapping[str, Sequence[dict[str, Any]]] = {
    "gpt-2": [_byte_level(True)],
    "smollm": [{"type": "Digits", "individual_digits": True}, _byte_level(True)],
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe"), _split(_LLAMA3)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _split(_QWEN2)),
}
_WHOLE = ("llama-bpe", "llama3", "llama-v3")
"""Pre-tokenisers whose words are looked up whole before merges apply, and whose prompts begin with BOS by default."""
_ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>")
"""Texts of tokens that end a turn, whatever else the file says."""


def tokenizer_json(gguf: Gguf) -> bytes:
    """The tokenizer as UTF-8 JSON, the same bytes for the same file; Unsupported names an unknown kind."""
    kind = gguf.get("tokenizer.ggml.model", str)
    if kind not in ("gpt2", "llama"):
        raise Unsupported("tokenizer cannot be imported", where=str(gguf.path), found=kind, allowed="gpt2, llama")
    tokens = _texts(gguf, "tokens")
    types = gguf.get("tokenizer.ggml.token_type", list, [1] * len(tokens))
    if len(types) != len(tokens):
        raise ModelError(
            "vocabulary and token types do not fit", where=str(gguf.path), found=len(types), allowed=len(tokens)
        )
    if len(set(tokens)) != len(tokens):
        twice = next(token for token, count in Counter(tokens).items() if count > 1)
        raise ModelError("two tokens are the same", where=str(gguf.path), found=repr(twice)[:40])
    added = [
        _added(index, token, kind)
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL, _USER)
    ]
    parts = _byte_level_parts(gguf, tokens) if kind == "gpt2" else _piece_parts(gguf, tokens, types)
    data = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": parts["normalizer"],
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": None,
        "decoder": parts["decoder"],
        "model": parts["model"],
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _piece_parts(gguf: Gguf, tokens: list[str], types: list[int]) -> Mapping[str, Any]:
    scores = gguf.get("tokenizer.ggml.scores", list)
    prefix = bool(gguf.metadata.get("tokenizer.ggml.add_space_prefix", True))
    unknown = _id(gguf, "unknown", len(tokens))
    return sentencepiece_parts(str(gguf.path), tokens, types, scores, prefix=prefix, unknown=unknown)


def _byte_level_parts(gguf: Gguf, tokens: list[str]) -> Mapping[str, Any]:
    pre = gguf.metadata.get("tokenizer.ggml.pre")
    if not isinstance(pre, str) or pre not in _PRE:
        raise Unsupported(
            "tokenizer cannot be imported: its words are split in an unknown way",
            where=f"{gguf.path}: tokenizer.ggml.pre",
            found="nothing" if pre is None else pre,
            allowed=", ".join(_PRE),
            remedy="convert the model again with a new converter" if pre is None else None,
        )
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return {
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(_PRE[pre])},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre in _WHOLE,
            "vocab": vocabulary,
            "merges": _merges(gguf, vocabulary),
        },
    }


def _merges(gguf: Gguf, vocabulary: Mapping[str, int]) -> list[str] | list[tuple[str, str]]:
    """The pairs, best first; each part and what they make must be tokens.

    As texts with a space between the parts, which are read a quarter faster, where no part has a space itself.
    """
    texts, pairs = _texts(gguf, "merges"), []
    for index, merge in enumerate(texts):
        left, right = merge.split(" ", 1)
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            where = f"{gguf.path}: tokenizer.ggml.merges[{index}]"
            raise ModelError("a merge of texts that are no tokens", where=where, found=repr(merge)[:40])
        pairs.append((left, right))
    return texts if all(" " not in right for _, right in pairs) else pairs


def _texts(gguf: Gguf, name: str) -> list[str]:
    items: list[str] = gguf.get(f"tokenizer.ggml.{name}", list)
    for index, item in enumerate(items):
        if not isinstance(item, str) or (name == "merges" and " " not in item):
            where = f"{gguf.path}: tokenizer.ggml.{name}[{index}]"
            raise ModelError("not a token or pair of tokens", where=where, found=repr(item)[:40])
    return items


def _added(index: int, token: str, kind: int) -> dict[str, Any]:
    return {
        "id": index,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": kind != _USER,
    }


def chat_template(gguf: Gguf) -> str:
    """The Jinja text that turns messages into a prompt; ModelError for a model that was not trained to chat."""
    if "tokenizer.chat_template" not in gguf.metadata:
        raise ModelError(
            "the model has no chat template, so it cannot answer messages",
            where=str(gguf.path),
            found="no metadata tokenizer.chat_template",
            remedy="use the instruction-tuned file of the model (its name often ends in -Instruct or -it)",
        )
    return str(gguf.get("tokenizer.chat_template", str))


def special_ids(gguf: Gguf) -> dict[str, Any]:
    """`bos`, `eos` (a list: the end of a turn may be another token than the end of text), `pad`, `add_bos`."""
    tokens = _texts(gguf, "tokens")
    ids = {name: _id(gguf, name, len(tokens)) for name in ("bos", "eos", "padding", "eot", "eom")}
    ends = [ids[name] for name in ("eos", "eot", "eom") if ids[name] is not None]
    ends += [tokens.index(text) for text in _ENDS if text in tokens]
    kind, pre = gguf.metadata.get("tokenizer.ggml.model"), gguf.metadata.get("tokenizer.ggml.pre")
    return {
        "bos": ids["bos"],
        "eos": sorted(set(ends)),
        "pad": ids["padding"],
        "add_bos": bool(gguf.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or pre in _WHOLE)),
    }


def _id(gguf: Gguf, name: str, count: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    if key not in gguf.metadata:
        return None
    value = int(gguf.get(key, int))
    if not 0 <= value < count:
        what = f"{name} token is outside the vocabulary"
        raise ModelError(what, where=str(gguf.path), found=value, allowed=f"0 to {count - 1}")
    return value
