# SPDX-License-Identifier: Apache-2.0
"""Counts what the stop lane misses and what it takes for a phrase by mistake, with `phrases.h` as it is.

    python measure.py --package build/voice.dpfbin

It enrols nothing: every take and sentence here is new to the ear. Voices that are not installed are left out, by name.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from ear import HZ, Ear, Phrases, Samples, Template
from sentences import PHRASES, TEST
from speech import Voice, in_room, louder, noisy, others, over, recordings

TAKES = 20
_ROW = re.compile(r"\{(DPF_FW_TAKE_\d+), (\d+)u, (\d+)u, (-?\d+)\}")
CHANGES: tuple[tuple[str, Callable[[Samples, int], Samples]], ...] = (
    ("as said", lambda samples, seed: samples),
    ("20 dB less loud", lambda samples, seed: louder(samples, -20)),
    ("road noise, 20 dB below", lambda samples, seed: noisy(samples, 20, seed)),
    ("road noise, 10 dB below", lambda samples, seed: noisy(samples, 10, seed)),
    ("road noise, 5 dB below", lambda samples, seed: noisy(samples, 5, seed)),
)


def load(path: Path) -> Phrases:
    """What is in a phrases.h."""
    text = path.read_text()

    def array(name: str) -> np.ndarray:
        found = re.search(rf"int8_t {name}\[\d+\]\[DPF_FW_DIMS\] = \{{\n(.*?)\}};", text, re.DOTALL)
        assert found is not None, name
        return np.array([line.strip(" {},").split(",") for line in found.group(1).splitlines()], int).astype(np.int8)

    templates = [Template(int(row[2]), array(row[0]), int(row[3])) for row in _ROW.findall(text)]
    return Phrases(templates, array("DPF_FW_FILLER"))


class Count:
    """Of one kind of speech."""

    def __init__(self, ear: Ear, phrases: Phrases) -> None:
        self._ear, self._phrases = ear, phrases

    def heard(self, samples: Samples) -> list[int]:
        """The phrases that were heard in it."""
        return [phrase for _, phrase in self._ear.listen(self._ear.frames(samples)[0], self._phrases)[0]]

    def misses(self, takes: Iterable[tuple[int, Samples]]) -> tuple[int, int]:
        """How many takes of a phrase were not heard as that phrase, and how many there were."""
        right = [phrase in self.heard(samples) for phrase, samples in takes]
        return len(right) - sum(right), len(right)

    def alarms(self, speech: Iterable[Samples]) -> tuple[int, float]:
        """How often something was heard, and in how many minutes."""
        pairs = [(len(self.heard(samples)), len(samples)) for samples in speech]
        return sum(count for count, _ in pairs), sum(length for _, length in pairs) / HZ / 60


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="count what the stop lane misses and mistakes")
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--phrases", type=Path, default=Path(__file__).parents[1] / "phrases.h")
    given = parser.parse_args()
    ear, voice = Ear(), Voice(given.package)
    count = Count(ear, load(given.phrases))
    takes = [(number, voice.say(text)) for number, text in enumerate(PHRASES, 1) for _ in range(TAKES)]
    own = [voice.say(text) for text in TEST]
    voice.close()
    for name, change in CHANGES:
        missed, of = count.misses((phrase, change(samples, seed)) for seed, (phrase, samples) in enumerate(takes))
        false, minutes = count.alarms(change(samples, seed) for seed, samples in enumerate(own))
        print(
            f"the enrolled voice, {name}: {missed} of {of} missed; {false} false in {minutes:.1f} min of other speech"
        )
    for text, samples in zip(TEST, own, strict=True):
        for phrase in count.heard(samples):
            print(f"    {text!r} was heard as {PHRASES[phrase - 1]!r}")
    for db in (30.0, 20.0, 10.0, 5.0):
        missed, of = count.misses((phrase, over(one, own[at], db)) for at, (phrase, one) in enumerate(takes))
        print(f"the enrolled voice, the answer heard {db:.0f} dB below: {missed} of {of} missed")
    for db in (10.0, 5.0, 0.0, -5.0):
        rooms = [(phrase, *in_room(one, own[at], db, at)) for at, (phrase, one) in enumerate(takes)]
        missed, of = count.misses((phrase, ear.cancelled(heard, played)) for phrase, heard, played in rooms)
        print(
            f"the enrolled voice, the answer {db:.0f} dB below in a room, taken out by echo.c: {missed} of {of} missed"
        )
    strangers = [(number, one) for number, text in enumerate(PHRASES, 1) for _, one in others(text)]
    if strangers:
        missed, of = count.misses(strangers)
        false, minutes = count.alarms(one for text in TEST for _, one in others(text))
        print(f"voices that were not enrolled: {missed} of {of} missed; {false} false in {minutes:.1f} min")
    for name, samples in recordings().items():
        false, minutes = count.alarms([samples])
        print(f"recording {name}: {false} false in {minutes:.1f} min")


if __name__ == "__main__":
    main()
