# SPDX-License-Identifier: Apache-2.0
"""Reading WAV while it arrives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.errors import InputError
from dpfedge.stage.decoder.wav import Compressed, WavReader


def read(data: bytes, piece: int | None = None) -> tuple[WavReader, Any]:
    reader = WavReader()
    blocks = []
    for start in range(0, len(data), piece or len(data) or 1):
        blocks += list(reader.push(memoryview(data[start : start + (piece or len(data))])))
    blocks += list(reader.finish())
    return reader, np.concatenate(blocks) if blocks else np.empty((0, reader.channels), np.float32)


@pytest.fixture
def ramp() -> Any:
    return (np.arange(700) * 37 - 12000).astype("<i2")


@pytest.mark.parametrize("piece", [1, 3, 17, 4096])
def test_read__pieces_of_any_length(audio: Any, ramp: Any, piece: int) -> None:
    """The samples do not depend on how the file was cut."""
    reader, frames = read(audio.wav(ramp), piece)

    assert (reader.rate, reader.channels) == (16000, 1)
    assert np.array_equal(frames[:, 0], ramp.astype(np.float32) / 32768)


@pytest.mark.parametrize("name", ["c01", "c02", "c03", "c04", "c05", "c08", "c09"])
@pytest.mark.parametrize("piece", [1, 5, None])
def test_read__chunks_around_the_data(audio: Any, ramp: Any, name: str, piece: int | None) -> None:
    """Extra chunks are no samples, wherever they lie and however they are padded."""
    _, frames = read(audio.cases(ramp)[name].make(), piece)

    assert np.array_equal(frames[:, 0] * 32768, ramp)


@pytest.mark.parametrize("name", ["d01", "d02", "d03", "d04", "d05", "d06", "d07", "d08", "a16"])
@pytest.mark.parametrize("piece", [7, None])
def test_read__wrong_sizes(audio: Any, ramp: Any, name: str, piece: int | None) -> None:
    """What was sent is read, whatever the header claims."""
    _, frames = read(audio.cases(ramp)[name].make(), piece)

    assert np.array_equal(frames[:, 0] * 32768, ramp)


def test_read__data_first_is_shown_before_the_end(audio: Any, ramp: Any) -> None:
    """Frames come out as soon as their bytes are in."""
    reader, data = WavReader(), audio.wav(ramp)

    first = list(reader.push(memoryview(data[:144])))

    assert sum(len(block) for block in first) == 50


def test_read__empty_file_with_a_chunk_behind(audio: Any) -> None:
    """A size of 0 before another chunk means no samples."""
    data = audio.riff(
        audio.fmt(1, 1, 16000, 16), audio.chunk(b"data", b""), audio.chunk(b"LIST", b"INFOISFT" + bytes(4))
    )

    assert len(read(data)[1]) == 0


@pytest.mark.parametrize(
    ("samples", "tag", "bits"),
    [
        (np.array([0, 128, 255], "u1"), 1, 8),
        (np.array([-(1 << 31), 0, (1 << 31) - 1], "<i4"), 1, 32),
        (np.array([-1, 0, 1], "<f4"), 3, 32),
        (np.array([-1, 0, 1], "<f8"), 3, 64),
    ],
)
def test_read__sample_formats(audio: Any, samples: Any, tag: int, bits: int) -> None:
    """Lowest, middle and highest value of each format."""
    _, frames = read(audio.wav(samples, tag=tag, bits=bits))

    assert frames[:, 0] == pytest.approx([-1, 0, 1], abs=0.01)


def test_read__24_bits_in_three_and_in_four_bytes(audio: Any) -> None:
    """Both layouts that recorders write give the same samples."""
    packed = bytes.fromhex("000080 000000 ffff7f")
    padded = bytes.fromhex("00000080 00000000 00ffff7f")
    four = audio.chunk(b"fmt ", bytes.fromhex("0100 0100 803e0000 00fa0000 0400 1800"))

    three = read(audio.riff(audio.fmt(1, 1, 16000, 24), audio.chunk(b"data", packed)))[1]

    assert np.array_equal(three, read(audio.riff(four, audio.chunk(b"data", padded)))[1])
    assert three[:, 0] == pytest.approx([-1, 0, 1], abs=1e-6)


def test_read__companded_formats_invert_the_encoder(audio: Any) -> None:
    """Decoding G.711 stays within a quantisation step of what was encoded."""
    samples = np.array([-32000, -1000, -10, 0, 10, 1000, 32000], "<i2")
    for tag, encode in ((7, audio.mulaw), (6, audio.alaw)):
        _, frames = read(audio.wav(np.frombuffer(encode(samples), "u1"), tag=tag, bits=8))

        assert frames[:, 0] * 32768 == pytest.approx(samples, rel=0.04, abs=20)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d11", "0 of 1400 bytes of samples"),
        ("d12", "ends inside its header"),
        ("e01", "number of channels is out of range; found 0"),
        ("e02", "sample rate is out of range; found 0 Hz"),
        ("e03", "unknown sample format"),
        ("e04", "0 bytes per frame"),
        ("e05", "7 bytes per frame"),
        ("e06", "found 65535; allowed 1 to 32"),
        ("e07", "tag 0x1234"),
        ("e12", "WAV"),
    ],
)
def test_read__impossible_headers(audio: Any, ramp: Any, name: str, text: str) -> None:
    """A header that cannot be right is refused with what was found."""
    with pytest.raises(InputError, match=text):
        read(audio.cases(ramp)[name].make())


def test_read__data_before_format(audio: Any) -> None:
    """Samples of no known format are refused."""
    with pytest.raises(InputError, match="before the format chunk"):
        read(audio.riff(audio.chunk(b"data", bytes(8)), audio.fmt(1, 1, 16000, 16)))


def test_read__no_format_in_a_long_file(audio: Any) -> None:
    """A file that is only junk is refused while it arrives."""
    reader = WavReader()
    head = audio.riff(b"JUNK\xff\xff\xff\xff")
    list(reader.push(memoryview(head)))

    list(reader.push(memoryview(bytes((1 << 20) - 20))))

    with pytest.raises(InputError, match="no format chunk"):
        list(reader.push(memoryview(bytes(1))))


def test_read__every_cut_of_a_file(audio: Any) -> None:
    """A file cut at any byte gives samples or InputError, nothing else."""
    data = audio.cases(np.arange(8, dtype="<i2"))["c04"].make()
    short = data[:100] + data[100 + 4000 :]
    for end in range(12, len(short)):
        try:
            _, frames = read(short[:end])
        except InputError:
            continue
        assert len(frames) <= 8 + 2100


def test_read__compressed_audio_is_handed_on_whole(audio: Any) -> None:
    """A codec inside a WAV file leaves with every byte pushed so far."""
    data = audio.wav(np.zeros(8, "<i2"), tag=0x11)
    with pytest.raises(Compressed) as caught:
        read(data)

    assert caught.value.head == data
