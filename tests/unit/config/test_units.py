# SPDX-License-Identifier: Apache-2.0
"""Numbers with units."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpfedge.config import bytes_per_second, celsius, duration_ms, share, size_bytes, watts
from dpfedge.errors import ConfigError


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (duration_ms, "30ms", 30.0), (duration_ms, "1.5s", 1500.0), (duration_ms, "250us", 0.25),
        (duration_ms, "2min", 120e3),
        (duration_ms, "1h", 3.6e6), (size_bytes, "64GiB", 64 << 30), (size_bytes, "64GB", 64 * 10**9),
        (size_bytes, "0B", 0),
        (size_bytes, "1.5 MiB", 3 << 19), (bytes_per_second, "204.8GB/s", 204_800_000_000), (watts, "500mW", 0.5),
        (celsius, "99C", 99.0), (share, "10%", 0.1), (share, "12.5%", 0.125), (share, "100%", 1.0),
    ],
)  # fmt: skip
def test_unit__is_read(read: Callable[[object], float], text: str, value: float) -> None:
    """Each unit gives the base unit."""
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (duration_ms, 30, "the unit is missing; found 30; allowed us, ms, s, min, h; write it like 30ms"),
        (duration_ms, "30", "the unit is missing"),
        (duration_ms, "-3ms", "a number with a unit is needed"),
        (duration_ms, True, "a number with a unit is needed"),
        (duration_ms, None, "a number with a unit is needed"),
        (duration_ms, "30MS", "write 30ms"),
        (size_bytes, "64gib", "write 64GiB"),
        (size_bytes, "64G", "unknown unit 'G'"),
        (size_bytes, "nan B", "a number with a unit is needed"),
        (size_bytes, "1e3MB", "a number with a unit is needed"),
        (share, 0.1, "the unit is missing; found 0.1; allowed %; write it like 10%"),
        (share, "101%", "more than the whole; found '101%'; allowed 0% to 100%"),
    ],
)
def test_unit__refusal_shows_how_to_write_it(read: Callable[[object], float], text: object, words: str) -> None:
    """A missing, unknown or misspelt unit is never guessed."""
    with pytest.raises(ConfigError) as caught:
        read(text)

    assert words in str(caught.value)
