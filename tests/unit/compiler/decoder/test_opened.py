# SPDX-License-Identifier: Apache-2.0
"""One door for both formats of decoders."""

from __future__ import annotations

from pathlib import Path

from made_folder import hf_folder
from made_gguf import llama_file

from dpfedge.compiler.decoder.opened import FOLDER_FILES, open_decoder


def test_open_decoder__gguf(tmp_path: Path) -> None:
    """A GGUF brings its name, tokenizer and template along."""
    opened = open_decoder({"model": llama_file(tmp_path)})

    assert (opened.name, opened.shape.architecture, opened.ids["eos"]) == ("tiny", "llama", [0])
    assert set(opened.assets) == {"tokenizer.json", "chat_template.jinja"}


def test_open_decoder__folder(tmp_path: Path) -> None:
    """A folder is called by its own name."""
    folder = hf_folder(tmp_path / "Tiny", "qwen3")
    opened = open_decoder({role: next(folder.glob(pattern)) for role, pattern in FOLDER_FILES.items()})

    assert (opened.name, opened.shape.architecture, opened.ids["bos"]) == ("Tiny", "qwen3", 0)
    assert opened.source.shape("token_embd.weight") == (96, 64)
