# SPDX-License-Identifier: Apache-2.0
"""Models split over several GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_decoder import IDS, Run, decoder_file, metadata, tensors
from made_gguf import gguf_bytes

from dpfedge.compiler.importer.gguf_parts import first_parts, open_gguf_parts
from dpfedge.errors import ModelError

COUNT = 3


def split_model(folder: Path, *, without: int | None = None, **changes: Any) -> list[Path]:
    """A decoder in three parts as gguf-split writes them: the first has the metadata, each some tensors."""
    made = tensors("llama")
    names = list(made)
    paths = []
    for number in range(COUNT):
        said = {"split.no": number, "split.count": COUNT, "split.tensors.count": len(names), **changes}
        mine = {name: made[name] for name in names[number::COUNT]}
        path = folder / f"big-{number + 1:05}-of-{COUNT:05}.gguf"
        if number != without:
            path.write_bytes(gguf_bytes({**(metadata("llama") if number == 0 else {}), **said}, mine))
        paths.append(path)
    return paths


@pytest.mark.parametrize("asked", range(COUNT))
def test_open_gguf_parts__any_part(tmp_path: Path, asked: int) -> None:
    """Whichever part is named, the whole model is opened, and computes what one file does."""
    opened = open_gguf_parts(split_model(tmp_path)[asked])

    assert set(opened.tensors) == set(tensors("llama"))
    assert opened.metadata["general.architecture"] == "llama"
    whole = Run(decoder_file(tmp_path))(IDS)
    np.testing.assert_array_equal(Run(split_model(tmp_path)[asked])(IDS), whole)
    opened.close()


def test_open_gguf_parts__whole_file(tmp_path: Path) -> None:
    """A file that is not split is opened as it is."""
    assert len(open_gguf_parts(decoder_file(tmp_path)).tensors) == len(tensors("llama"))


def test_open_gguf_parts__missing_part(tmp_path: Path) -> None:
    """The missing file is named with what to do."""
    paths = split_model(tmp_path, without=1)

    with pytest.raises(ModelError, match=r"big-00002-of-00003\.gguf: part 2 of 3 .* is missing; fetch all parts"):
        open_gguf_parts(paths[0])


def test_open_gguf_parts__cut_part(tmp_path: Path) -> None:
    """Every part is checked."""
    paths = split_model(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-64])

    with pytest.raises(ModelError, match=r"big-00003-of-00003\.gguf: tensor .* ends behind the file"):
        open_gguf_parts(paths[0])


def test_open_gguf_parts__parts_of_two_models(tmp_path: Path) -> None:
    """Parts in each other's place, or of another model, are refused."""
    paths = split_model(tmp_path)
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(ModelError, match=r"another part than its name says; found split\.no 2 of 3; allowed .* 1 of 3"):
        open_gguf_parts(paths[0])

    paths = split_model(tmp_path, **{"split.tensors.count": 99})
    with pytest.raises(ModelError, match="hold another number of tensors; found 29; allowed 99"):
        open_gguf_parts(paths[0])


def test_open_gguf_parts__tensor_twice(tmp_path: Path) -> None:
    """A tensor in two parts is refused."""
    paths = split_model(tmp_path)
    said = {"split.no": 2, "split.count": COUNT, "split.tensors.count": 29}
    made = tensors("llama")
    names = list(made)
    again = {name: made[name] for name in [*names[2::COUNT][:-1], names[0]]}
    paths[2].write_bytes(gguf_bytes(said, again))

    with pytest.raises(ModelError, match=r"two tensors are called token_embd\.weight"):
        open_gguf_parts(paths[0])


def test_open_gguf_parts__renamed(tmp_path: Path) -> None:
    """A part whose name does not tell where the others are is refused."""
    path = split_model(tmp_path)[0].rename(tmp_path / "big.gguf")

    with pytest.raises(ModelError, match=r"another name; found big\.gguf; allowed NAME-00001-of-00003\.gguf"):
        open_gguf_parts(path)


@pytest.mark.parametrize(("names", "found"), [
    (["a.gguf"], ["a.gguf"]), ([], []), (["b.gguf", "a.gguf"], ["a.gguf", "b.gguf"]),
    (["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"], ["m-00001-of-00002.gguf"]),
    (["m-00001-of-00002.gguf", "n-00001-of-00002.gguf"], ["m-00001-of-00002.gguf", "n-00001-of-00002.gguf"]),
])  # fmt: skip
def test_first_parts__one_for_each_model(names: list[str], found: list[str]) -> None:
    """The parts of a split model stand for one file, of two models for two."""
    assert first_parts(names) == found
