# SPDX-License-Identifier: Apache-2.0
"""Words of the command line as options and inputs; the command itself runs in tests/e2e/test_cli.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpfedge.cli.run_graph import _data, _options, is_drawn
from dpfedge.errors import UsageError
from dpfedge.stage.ports import Dim, Port

NUMBERS = Port("f32", (Dim("n", 1, 10),))


def test_options__by_stage() -> None:
    """Values are JSON where they are, else text."""
    words = ["camera.source=a=b.mp4", "camera.rate=2.5", "llm.question=What?", "llm.examples=[1]"]

    assert _options(words) == {
        "camera": {"source": "a=b.mp4", "rate": 2.5}, "llm": {"question": "What?", "examples": [1]},
    }  # fmt: skip


@pytest.mark.parametrize("word", ["camera.source", "source=x", "=x", "camera.=x", ".source=x"])
def test_options__of_a_wrong_form(word: str) -> None:
    """The form is shown."""
    with pytest.raises(UsageError, match=r"allowed STAGE\.NAME=VALUE"):
        _options([word])


def test_data__text_bytes_and_numbers(tmp_path: Path) -> None:
    """A file's raw numbers are of the port's dtype; `.npy` says itself what it is."""
    numbers = np.array([1, 2, 3], np.float32)
    (tmp_path / "raw").write_bytes(numbers.tobytes())
    np.save(tmp_path / "n.npy", numbers)

    assert _data("hello", NUMBERS) == "hello"
    assert _data(f"@{tmp_path / 'raw'}", None) == numbers.tobytes()
    assert _data(f"@{tmp_path / 'raw'}", NUMBERS).tolist() == [1, 2, 3]
    assert _data(f"@{tmp_path / 'n.npy'}", NUMBERS).tolist() == [1, 2, 3]


def test_data__that_cannot_be_read(tmp_path: Path) -> None:
    """No file, half a number."""
    (tmp_path / "raw").write_bytes(b"12345")

    with pytest.raises(UsageError, match="the file cannot be read"):
        _data(f"@{tmp_path / 'none'}", NUMBERS)
    with pytest.raises(UsageError, match="no whole number of values; found 5 bytes; allowed f32"):
        _data(f"@{tmp_path / 'raw'}", NUMBERS)


def test_drawn__a_pipeline_file_always_is(tmp_path: Path) -> None:
    """Before it is opened."""
    assert is_drawn(tmp_path / "p.yaml")
