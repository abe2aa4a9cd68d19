# SPDX-License-Identifier: Apache-2.0
"""A GGUF's vocabulary and merges in, a Hugging Face `tokenizer.json` out; it tokenises nothing itself.

Byte-level BPE only (`tokenizer.ggml.model` = gpt2); the pre-tokeniser is chosen by `tokenizer.ggml.pre` as llama.cpp
does (`llama-vocab.cpp`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dpfedge.compiler.importer.gguf import Gguf
from dpfedge.errors import ModelError, Unsupported

__all__ = ["chat_template", "special_ids", "tokenizer_json"]

_CONTROL, _USER = (
    3,
    4,
)  # token types of GGUF: both are matched before the text is split, control tokens are dropped from text
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
    "llama-bpe": _split(_LLAMA3),
    "qwen2": _split(_QWEN2),
}


def tokenizer_json(gguf: Gguf) -> bytes:
    """The tokenizer as UTF-8 JSON, the same bytes for the same file; Unsupported names an unknown kind."""
    kind, pre = gguf.get("tokenizer.ggml.model", str), gguf.get("tokenizer.ggml.pre", str, "gpt-2")
    if kind != "gpt2" or pre not in _PRE:
        raise Unsupported(
            "tokenizer cannot be imported",
            where=str(gguf.path),
            found=f"{kind}/{pre}",
            allowed="gpt2 with " + ", ".join(_PRE),
        )
    tokens, merges = _texts(gguf, "tokens"), _texts(gguf, "merges")
    types = gguf.get("tokenizer.ggml.token_type", list, [1] * len(tokens))
    if len(types) != len(tokens) or len(set(tokens)) != len(tokens):
        raise ModelError(
            "vocabulary and token types do not fit", where=str(gguf.path), found=len(types), allowed=len(tokens)
        )
    added = [
        _added(index, token, kind)
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER)
    ]
    data = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(_PRE[pre])},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre == "llama-bpe",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in merges],
        },
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


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
        "special": kind == _CONTROL,
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
    ends += [
        tokens.index(text)
        for text in ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>")
        if text in tokens
    ]
    return {
        "bos": ids["bos"],
        "eos": sorted(set(ends)),
        "pad": ids["padding"],
        "add_bos": bool(gguf.metadata.get("tokenizer.ggml.add_bos_token", False)),
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
