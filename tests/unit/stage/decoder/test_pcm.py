# SPDX-License-Identifier: Apache-2.0
"""Raw samples of a declared format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.errors import InputError
from dpfedge.stage.decoder.pcm import ENCODINGS, PcmReader, check_layout


def read(encoding: str, data: bytes, channels: int, piece: int) -> Any:
    reader = PcmReader(ENCODINGS[encoding], 16000, channels)
    blocks = [block for at in range(0, len(data), piece) for block in reader.push(memoryview(data[at : at + piece]))]
    return np.concatenate([*blocks, *reader.finish()])


@pytest.mark.parametrize("piece", [1, 3, 5, 1323])
@pytest.mark.parametrize("encoding", list(ENCODINGS))
def test_push__odd_pieces(encoding: str, piece: int) -> None:
    """Bytes of a frame that is not complete wait for the next piece."""
    data = np.random.default_rng(1).integers(0, 100, 2 * 24 * 20, dtype=np.uint8).tobytes()

    whole = read(encoding, data, 2, len(data))

    assert np.array_equal(whole, read(encoding, data, 2, piece))
    assert whole.shape[1] == 2


def test_push__part_of_a_frame_at_the_end() -> None:
    """Bytes that are no whole frame are no sample."""
    assert len(read("pcm_s16le", bytes(7), 2, 100)) == 1


def test_align__forgets_part_of_a_frame() -> None:
    """What comes next begins a frame of its own."""
    reader = PcmReader(ENCODINGS["pcm_s16le"], 16000, 1)
    data = np.array([1, 2, 3], "<i2").tobytes()
    assert len(next(reader.push(memoryview(data[:3])))) == 1
    reader.align()

    assert np.array_equal(next(reader.push(memoryview(data))), read("pcm_s16le", data, 1, 100))


def test_convert__float_that_is_no_number() -> None:
    """NaN and infinity become silence, absurd values are bounded."""
    data = np.array([np.nan, np.inf, -np.inf, 1e30], "<f4").tobytes()

    assert read("pcm_f32le", data, 1, 16)[:, 0].tolist() == [0, 0, 0, 4]
    assert read("pcm_f64le", np.array([1e300, np.nan], "<f8").tobytes(), 1, 16)[:, 0].tolist() == [4, 0]


@pytest.mark.parametrize("rate", [None, 0, 999, 384_001, True, 16000.0, "16000"])
def test_check_layout__impossible_rate(rate: Any) -> None:
    """A rate that is missing, absurd or no integer is refused."""
    with pytest.raises(InputError, match="sample rate"):
        check_layout(rate, 1)


@pytest.mark.parametrize("channels", [None, 0, -1, 33, True])
def test_check_layout__impossible_channels(channels: Any) -> None:
    """A number of channels that is missing or absurd is refused."""
    with pytest.raises(InputError, match="channels"):
        check_layout(16000, channels)
