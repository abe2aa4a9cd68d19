# SPDX-License-Identifier: Apache-2.0
"""Teaches the stop lane a speaker: takes of the phrases in, `phrases.h` out, with what was counted on other speech.

    python enrol.py --package build/voice.dpfbin > ../phrases.h          # the demo's own voice
    python enrol.py --package build/voice.dpfbin --takes FOLDER > ...    # a person: FOLDER/1/*.wav, FOLDER/2/*.wav

Templates are takes, from the first loud frame to the last, some of them with road noise. Fillers are the medians of
k-means clusters of other speech. A template's threshold lies between the worst of its phrase's takes and the best
of the other speech, both with the same noise, nearer to the latter: a stop that is missed is worse than a sentence
that has to be said again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from ear import LENGTH_MAX, Ear, Frames, Phrases, Samples, Template
from sentences import PHRASES, TUNE
from speech import Voice, noisy, read

TAKES, FILLERS = 10, 64
"""Takes that templates are chosen from, and thresholds are set with; fillers."""
NOISE_DB = {None: 3, 10.0: 3}
"""How far below the speech road noise is (None: there is none) → templates of a phrase."""
WORDS_DB = 30.0
"""A frame so far below the loudest is silence."""
LENIENCE = 0.6
"""Where a threshold lies between the worst take of its phrase (0) and the nearest other speech (1). Chosen by hand: 0.5
missed takes over noise and over answers. README.md says what 0.6 costs."""
_ANY = -32000


def _words(ear: Ear, samples: Samples, frames: Frames) -> Frames:
    """The frames from the first to the last that are loud in the samples, which have no noise."""
    loudness = ear.frames(samples)[1]
    places = np.flatnonzero(loudness > loudness.max() - WORDS_DB)
    return frames[places[0] : places[-1] + 1][:LENGTH_MAX]


def clusters(frames: Frames, count: int, rounds: int = 12, seed: int = 1) -> Frames:
    """The medians of `count` clusters (Lloyd's algorithm in the city-block distance that the ear uses)."""
    points = frames.astype(np.float32)
    centres = points[np.random.default_rng(seed).choice(len(points), count, replace=False)]
    for _ in range(rounds):
        parts = np.array_split(points, 1 + len(points) // 2000)
        nearest = np.concatenate([np.abs(part[:, None] - centres).sum(2).argmin(1) for part in parts])
        centres = np.stack(
            [np.median(points[nearest == one], 0) if (nearest == one).any() else centres[one] for one in range(count)]
        )
    return centres.round().astype(np.int8)


def enrol(ear: Ear, takes: Mapping[int, Sequence[Samples]], other: Sequence[Samples]) -> Phrases:
    """What the ear compares with, for phrases → takes of them; `other` is speech that must not trigger it."""
    heard = {db: [ear.frames(_with(one, db, seed)) for seed, one in enumerate(other)] for db in NOISE_DB}
    loud = [frames[loudness > loudness.max() - WORDS_DB] for rows in heard.values() for frames, loudness in rows]
    fillers = clusters(np.concatenate(loud)[::6], FILLERS)
    templates: list[Template] = []
    for phrase, samples in takes.items():
        for db, rows in heard.items():
            templates += _phrase(ear, phrase, samples, db, [frames for frames, _ in rows], fillers)
    return Phrases(templates, fillers)


def _with(samples: Samples, db: float | None, seed: int) -> Samples:
    return samples if db is None else noisy(samples, db, seed)


def _phrase(
    ear: Ear, phrase: int, takes: Sequence[Samples], db: float | None, other: Sequence[Frames], fillers: Frames
) -> Iterator[Template]:
    """The takes that the others of the phrase are nearest to, with thresholds."""

    def best(frames: Frames, template: Frames) -> float:
        return ear.listen(frames, Phrases([Template(phrase, template, _ANY)], fillers))[1]

    spoken = [ear.frames(_with(one, db, seed))[0] for seed, one in enumerate(takes)]
    cut = [_words(ear, one, frames) for one, frames in zip(takes, spoken, strict=True)]
    costs = np.array([[best(frames, template) for frames in spoken] for template in cut])
    np.fill_diagonal(costs, np.nan)
    chosen = np.nanmean(costs, 1).argsort()[: NOISE_DB[db]]
    # a take counts as heard when any template hears it
    worst = float(np.nanmax(np.nanmin(costs[chosen], 0)))
    for one in chosen:
        nearest = min(best(frames, cut[one]) for frames in other)
        threshold = round(worst + LENIENCE * (nearest - worst)) if nearest > worst else round(nearest)
        place = f"phrase {phrase}, noise {db}"
        print(f"{place}: takes {worst:.0f}, other speech {nearest:.0f}, threshold {threshold}", file=sys.stderr)
        yield Template(phrase, cut[one], threshold)


def header(phrases: Phrases, said: Sequence[str]) -> str:
    """phrases.h."""
    rows = [
        "/* SPDX-License-Identifier: Apache-2.0\n *",
        " * What the stop lane listens for; made by enrol/enrol.py.",
        *(f" * Phrase {number}: {text}" for number, text in enumerate(said, 1)),
        ' */\n#ifndef DPF_FW_PHRASES_H\n#define DPF_FW_PHRASES_H\n\n#include "keyword.h"\n',
        _array("DPF_FW_FILLER", phrases.fillers),
    ]
    rows += [_array(f"DPF_FW_TAKE_{at}", one.frames) for at, one in enumerate(phrases.templates)]
    rows += [
        f"static const dpf_fw_template DPF_FW_TAKES[{len(phrases.templates)}] = {{",
        *(
            f"    {{DPF_FW_TAKE_{at}, {len(one.frames)}u, {one.phrase}u, {one.threshold}}},"
            for at, one in enumerate(phrases.templates)
        ),
        "};\n\nstatic const dpf_fw_phrases DPF_FW_PHRASES = "
        f"{{DPF_FW_TAKES, {len(phrases.templates)}u, DPF_FW_FILLER, {len(phrases.fillers)}u}};\n\n#endif",
    ]
    return "\n".join(rows) + "\n"


def _array(name: str, frames: Frames) -> str:
    lines = ",\n".join("    {" + ", ".join(map(str, row)) + "}" for row in frames.tolist())
    return f"static const int8_t {name}[{len(frames)}][DPF_FW_DIMS] = {{\n{lines}}};\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="teach the stop lane a speaker")
    parser.add_argument("--package", type=Path, required=True, help="whose voice says the other speech")
    parser.add_argument("--takes", type=Path, help="a folder with WAV files of each phrase; default: the same voice")
    given = parser.parse_args()
    voice = Voice(given.package)
    try:
        other = [voice.say(text) for text in TUNE]
        takes = {
            number: [read(path) for path in sorted((given.takes / str(number)).glob("*.wav"))]
            if given.takes
            else [voice.say(text) for _ in range(TAKES)]
            for number, text in enumerate(PHRASES, 1)
        }
    finally:
        voice.close()
    print(header(enrol(Ear(), takes, other), PHRASES), end="")


if __name__ == "__main__":
    main()
