# SPDX-License-Identifier: Apache-2.0
"""Finding and reading containers by their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.errors import InputError
from dpfedge.stage.decoder.container import ContainerReader, container_of, open_reader

NAMES = [f"{row}{number:02}" for row, numbers in (("a", range(1, 28)), ("b", range(1, 6)), ("c", range(1, 10)),
                                                   ("d", range(1, 14)), ("e", range(1, 13)), ("f", range(1, 4)))
         for number in numbers]  # fmt: skip
MISSING = {"a05", "a11", "a12", "a14", "a15", "a17", "a25", "b02", "b03", "c06", "c07", "d10"}


def read(data: bytes, piece: int = 4096) -> tuple[ContainerReader, Any]:
    reader = ContainerReader()
    blocks = [block for at in range(0, len(data), piece) for block in reader.push(memoryview(data[at : at + piece]))]
    blocks += list(reader.finish())
    return reader, np.concatenate(blocks) if blocks else np.empty((0, 1), np.float32)


@pytest.fixture(scope="module")
def tune(audio: Any) -> Any:
    """A second of something that encoders like."""
    time = np.arange(16000) / 16000
    return (8000 * np.sin(2 * np.pi * (300 + 200 * time) * time)).astype("<i2")


@pytest.mark.parametrize("name", sorted(set(NAMES) - MISSING))
def test_read__every_kind_of_file(audio: Any, tune: Any, name: str) -> None:
    """Exact files give exact samples, others about as much audio as went in, bad ones InputError."""
    case = audio.cases(tune)[name]
    if case.skip:
        pytest.skip(case.skip)
    if case.expect == "refused":
        with pytest.raises(InputError) as caught:
            read(case.make())
        assert caught.value.found is not None
        return
    reader, frames = read(case.make())

    if case.exact:
        assert np.array_equal(np.round(frames[:, 0] * 32768), tune)
    elif case.expect == "same":
        assert len(frames) / reader.rate == pytest.approx(1.0, abs=0.15)
        assert np.abs(frames).max() == pytest.approx(0.25, abs=0.1) or name == "b04"


@pytest.mark.parametrize("piece", [1, 3])
def test_read__tiny_pieces(audio: Any, tune: Any, piece: int) -> None:
    """The container is recognised however few bytes come at a time."""
    assert np.array_equal(read(audio.wav(tune[:200]), piece)[1][:, 0] * 32768, tune[:200])


def test_read__compressed_file_cut_off(audio: Any, tune: Any) -> None:
    """A compressed file with its end cut off gives what was there."""
    case = audio.cases(np.tile(tune, 5))["a20"]
    if case.skip:
        pytest.skip(case.skip)
    data = case.make()

    _, frames = read(data[: len(data) // 2])

    assert 0 < len(frames) < 5 * len(tune)


@pytest.mark.parametrize(
    "magic", [b"fLaC", b"OggS", b"\x1a\x45\xdf\xa3", b"\0\0\0\x20ftypM4A ", b"ID3\4\0\0\0\0\0\0", b"#!AMR\n"]
)
def test_read__magic_and_rubbish(magic: bytes) -> None:
    """The right first bytes do not make a file."""
    pytest.importorskip("av")
    with pytest.raises(InputError, match="audio: "):
        read(magic + bytes(np.random.default_rng(3).integers(0, 256, 5000, dtype=np.uint8)))


def test_container_of__noise_is_hardly_ever_mpeg() -> None:
    """Random bytes behind a sync word are refused when a field has a reserved value."""
    assert container_of(b"\xff\xfb\x90\x64" + bytes(12)) == "mp3"
    assert container_of(b"\xff\xfb\xf0\x64" + bytes(12)) is None
    assert container_of(b"\xff\xfb\x9c\x64" + bytes(12)) is None
    assert container_of(b"\xff\xf1\x50\x80" + bytes(12)) == "aac"
    assert container_of(b"RIFF\0\0\0\0RMID" + bytes(4)) is None


def test_read__a_play_list_is_not_followed() -> None:
    """Text that names other files is no audio."""
    with pytest.raises(InputError, match="no known audio container"):
        read(b"#EXTM3U\n#EXTINF:1\nfile:///etc/passwd\n")


def test_open_reader__unknown_encoding() -> None:
    """The encodings are named."""
    with pytest.raises(InputError, match="allowed container, pcm_u8"):
        open_reader({"encoding": "opus"})


def test_open_reader__raw_without_rate() -> None:
    """Raw samples need their rate."""
    with pytest.raises(InputError, match="sample rate"):
        open_reader({"encoding": "pcm_s16le"})
