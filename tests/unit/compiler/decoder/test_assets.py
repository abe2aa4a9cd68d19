# SPDX-License-Identifier: Apache-2.0
"""Special ids and assets of Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_folder import TOKENIZER, config, hf_folder

from dpfedge.compiler.decoder.assets import folder_assets
from dpfedge.errors import ModelError


def write(folder: Path, name: str, data: Any) -> None:
    """One JSON file of a folder."""
    (folder / name).write_text(json.dumps(data))


def test_folder_assets__of_a_folder(tmp_path: Path) -> None:
    """Ids come from config.json where there is nothing newer, the tokenizer is kept byte for byte."""
    folder = hf_folder(tmp_path / "hf")
    ids, assets = folder_assets(folder, config("llama"), 96)

    assert ids == {"bos": 0, "eos": [1], "pad": None, "add_bos": False}
    assert assets["tokenizer.json"] == (folder / "tokenizer.json").read_bytes()
    assert assets["chat_template.jinja"] == b"{{ messages }}"


def test_folder_assets__several_ends(tmp_path: Path) -> None:
    """generation_config.json adds its ends, and tokens known to end a turn are ends without being named."""
    folder = hf_folder(tmp_path / "hf")
    write(folder, "generation_config.json", {"eos_token_id": [5, 7], "bos_token_id": 3, "pad_token_id": 2})
    vocab = {**TOKENIZER["model"]["vocab"], "<|im_end|>": 95}
    write(folder, "tokenizer.json", {**TOKENIZER, "model": {**TOKENIZER["model"], "vocab": vocab}})

    ids, _ = folder_assets(folder, config("llama"), 96)
    assert (ids["bos"], ids["eos"], ids["pad"]) == (3, [1, 5, 7, 95], 2)


def test_folder_assets__add_bos(tmp_path: Path) -> None:
    """The setting decides; without it the tokenizer's post-processor does."""
    folder = hf_folder(tmp_path / "hf")
    piece = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    processor = {"type": "TemplateProcessing", "single": [piece, text], "pair": [text],
                 "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}  # fmt: skip
    write(folder, "tokenizer.json", {**TOKENIZER, "post_processor": processor})
    assert folder_assets(folder, config("llama"), 96)[0]["add_bos"] is True

    write(folder, "tokenizer_config.json", {"add_bos_token": False, "chat_template": "x"})
    assert folder_assets(folder, config("llama"), 96)[0]["add_bos"] is False


def test_folder_assets__templates(tmp_path: Path) -> None:
    """A file of its own comes first, then the template called default."""
    folder = hf_folder(tmp_path / "hf")
    write(folder, "tokenizer_config.json", {"chat_template": [
        {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]})  # fmt: skip
    assert folder_assets(folder, config("llama"), 96)[1]["chat_template.jinja"] == b"plain"

    (folder / "chat_template.jinja").write_text("own")
    assert folder_assets(folder, config("llama"), 96)[1]["chat_template.jinja"] == b"own"


def test_folder_assets__refuses(tmp_path: Path) -> None:
    """What is missing, damaged, out of range or leads out is named."""
    folder = hf_folder(tmp_path / "hf")
    with pytest.raises(ModelError, match="outside the vocabulary; found 1; allowed 0 to 0"):
        folder_assets(folder, config("llama"), 1)
    with pytest.raises(ModelError, match="eos_token_id is no token id; found 'x'"):
        folder_assets(folder, config("llama", eos_token_id="x"), 96)

    with pytest.raises(ModelError, match="no token ends a turn; add eos_token_id"):
        folder_assets(folder, config("llama", eos_token_id=None), 96)

    write(folder, "tokenizer_config.json", {})
    with pytest.raises(ModelError, match=r"no chat template; .*take the instruction-tuned model"):
        folder_assets(folder, config("llama"), 96)
    (folder / "chat_template.jinja").symlink_to("/etc/hostname")
    with pytest.raises(ModelError, match="file lies outside the model's folder; found chat_template"):
        folder_assets(folder, config("llama"), 96)

    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        folder_assets(folder, config("llama"), 96)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"file is missing; found tokenizer\.json"):
        folder_assets(folder, config("llama"), 96)


def test_folder_assets__long_template(tmp_path: Path) -> None:
    """A template beyond its limit is not read."""
    folder = hf_folder(tmp_path / "hf")
    (folder / "chat_template.jinja").write_bytes(bytes((1 << 20) + 1))

    with pytest.raises(ModelError, match="file is too long; found 1048577; allowed at most 1048576 bytes"):
        folder_assets(folder, config("llama"), 96)
