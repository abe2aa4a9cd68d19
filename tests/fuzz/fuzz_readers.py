# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the Python reader, and compares it with the C reader, under atheris; see README.md beside this file.

python tests/fuzz/fuzz_readers.py -runs=1000000 build/corpus tests/fuzz/corpus/package
"""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
with atheris.instrument_imports(include=["dpfedge.package", "dpfedge.signing.area"]):
    import cases
    import target

    from dpfedge.errors import FormatError
    from dpfedge.package import cbor

GROWTH_MAX_KIB = 64 << 10


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Half of the time a change of the manifest's values that leaves the encoding right, else any change of bytes."""
    dice = random.Random(seed)
    if len(data) > 2 and 1 < data[0] < target.AREA and dice.random() < 0.5:
        try:
            value = cbor.decode(data[1:], "input")
        except FormatError:
            value = None
        if isinstance(value, dict):
            return (data[:1] + cases.encode(cases.change(dice, value)))[:most]
    return atheris.Mutate(data, most)


def try_bounded(data: bytes) -> None:
    """One input; AssertionError when it makes the process larger by more than an input of a few kilobytes warrants."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    target.try_input(data)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < GROWTH_MAX_KIB, f"{len(data)} bytes took {grown} KiB"


def main() -> None:
    """Hand over to libFuzzer; it does not come back."""
    atheris.Setup(sys.argv, try_bounded, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
