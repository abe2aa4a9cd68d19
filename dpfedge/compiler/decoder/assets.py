# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder's tokenizer and settings in, a decoder's special ids and assets out; it tokenises no text.

What a package keeps is `tokenizer.json` as shipped and the chat template; of the other files only numbers are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfedge.compiler.importer.confined import confined
from dpfedge.compiler.importer.safetensors import read_json
from dpfedge.errors import ModelError

__all__ = ["folder_assets", "read_tokenizer"]

_TEMPLATE_MAX_BYTES = 1 << 20  # the longest known template has 20 KiB
_TOKENIZER_MAX_BYTES = 128 << 20  # the largest known has 33 MiB
_ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<end_of_turn>")
"""Texts of tokens that end a turn, whatever the files say."""


def folder_assets(folder: Path, config: Mapping[str, Any], vocabulary: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(`bos`, `eos`, `pad`, `add_bos`; assets by name) of a folder whose config.json is `config`.

    ModelError names a file that is missing, a token outside `vocabulary`, or a tokenizer that cannot be read.
    """
    data = _bytes(folder, "tokenizer.json", _TOKENIZER_MAX_BYTES)
    tokenizer = read_tokenizer(data, str(folder / "tokenizer.json"))
    settings = _optional(folder, "tokenizer_config.json")
    both = (_optional(folder, "generation_config.json"), config)
    ends = {id for part in both for id in _ids(part, "eos_token_id", folder)}
    ends |= {id for text in _ENDS if (id := tokenizer.token_to_id(text)) is not None}
    if not ends:
        raise ModelError("no token ends a turn", where=str(folder), remedy="add eos_token_id to generation_config.json")
    bos = next((id for part in both for id in _ids(part, "bos_token_id", folder)), None)
    pad = next((id for part in both for id in _ids(part, "pad_token_id", folder)), None)
    for id in (*ends, *(id for id in (bos, pad) if id is not None)):
        if not 0 <= id < vocabulary:
            what = "a special token is outside the vocabulary"
            raise ModelError(what, where=str(folder), found=id, allowed=f"0 to {vocabulary - 1}")
    add_bos = settings.get("add_bos_token")
    if not isinstance(add_bos, bool):  # newer files say it in the tokenizer's own post-processor
        add_bos = bos is not None and tokenizer.encode("a").ids[:1] == [bos]
    ids = {"bos": bos, "eos": sorted(ends), "pad": pad, "add_bos": add_bos and bos is not None}
    return ids, {"tokenizer.json": data, "chat_template.jinja": _template(folder, settings)}


def _file(folder: Path, name: str) -> Path:
    return confined(folder, name, str(folder), "file")


def _bytes(folder: Path, name: str, most: int) -> bytes:
    path = _file(folder, name)
    if (size := path.stat().st_size) > most:
        raise ModelError("file is too long", where=str(path), found=size, allowed=f"at most {most} bytes")
    return path.read_bytes()


def _optional(folder: Path, name: str) -> dict[str, Any]:
    return read_json(_file(folder, name)) if (folder / name).exists() else {}


def read_tokenizer(data: bytes, where: str) -> Any:
    """The library's tokenizer of a tokenizer.json; ModelError, caused by the library's own error, where it has none."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises plain Exception for any fault of the file
        raise ModelError("tokenizer.json cannot be read", where=where, found=str(error)[:200]) from error


def _ids(part: Mapping[str, Any], key: str, folder: Path) -> list[int]:
    """The id or ids under `key`; none where it is absent or null."""
    value = part.get(key)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(id) is int for id in ids):
        raise ModelError(f"{key} is no token id", where=str(folder), found=f"{value!r}"[:80])
    return ids


def _template(folder: Path, settings: Mapping[str, Any]) -> bytes:
    """chat_template.jinja, or the one in tokenizer_config.json; of several the one called default."""
    if (folder / "chat_template.jinja").exists():
        return _bytes(folder, "chat_template.jinja", _TEMPLATE_MAX_BYTES)
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
        found = named.get("default")
    if not isinstance(found, str):
        raise ModelError("the model has no chat template", where=str(folder), found=type(found).__name__,
                         allowed="chat_template.jinja, or chat_template in tokenizer_config.json",
                         remedy="take the instruction-tuned model")  # fmt: skip
    return found.encode()
