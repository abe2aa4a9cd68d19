# SPDX-License-Identifier: Apache-2.0
"""Writes `tables.h`, the constants of `cepstra.c`, from their formulas: `python make_tables.py > ../tables.h`.

It reads nothing, so that the same file comes out everywhere. Each cepstrum is divided by its spread in speech, which
makes each of them count (after Tohkura, IEEE ASSP-35, 1987).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

FFT, HZ, BANDS, CEPSTRA, LOW_HZ, HIGH_HZ = 512, 16000, 24, 12, 100.0, 7600.0
WINDOW = 400
TYPICAL = (-1675, 237, 4271, -1176, -1425, 39, -2007, -47, -624, 586, -277, 39)
"""The mean of speech, taken for it before any was heard. It and the spreads (standard deviations) were measured once,
over 24,000 loud frames of thirteen voices (the demo's, flite's, espeak-ng's) and of people's recordings."""
SPREAD = (9843, 5082, 6058, 4794, 3629, 3844, 3333, 2553, 2188, 2026, 1760, 1666)
SLOPE_SPREAD = (22262, 11581, 12881, 9866, 8980, 8560, 8336, 6449, 5554, 5375, 4496, 4306)
LEVEL_WEIGHT, SLOPE_WEIGHT = 30, 22
"""How far an ordinary difference goes in a frame's -127 to 127."""


def _mel(hz: float) -> float:
    return 2595 * math.log10(1 + hz / 700)


def _row(numbers: Iterable[int], width: int = 16) -> str:
    texts = [str(number) for number in numbers]
    lines = [", ".join(texts[at : at + width]) for at in range(0, len(texts), width)]
    return "{\n    " + ",\n    ".join(lines) + "}"


def _bins() -> tuple[list[int], list[int], int, int]:
    """The lower band of each bin, and its weight in the upper one, times 32768; the first bin and the one behind."""
    low, high = _mel(LOW_HZ), _mel(HIGH_HZ)
    bands, weights = [0] * (FFT // 2), [0] * (FFT // 2)
    used = []
    for at in range(FFT // 2):
        place = (_mel(at * HZ / FFT) - low) / (high - low) * (BANDS + 1)
        if 0 <= place < BANDS + 1:
            bands[at], weights[at] = int(place), round((place - int(place)) * 32768)
            used.append(at)
    return bands, weights, used[0], used[-1] + 1


def text() -> str:
    """The whole header."""
    bands, weights, first, last = _bins()
    turns = [2 * math.pi * k / FFT for k in range(FFT // 2)]
    cosine = [min(32767, round(32768 * math.cos(turn))) for turn in turns]
    sine = [min(32767, round(32768 * math.sin(turn))) for turn in turns]
    level = [round(65536 * LEVEL_WEIGHT / v) for v in SPREAD]
    slope = [round(65536 * SLOPE_WEIGHT / v) for v in SLOPE_SPREAD]
    hamming = [0.54 - 0.46 * math.cos(2 * math.pi * i / (WINDOW - 1)) for i in range(WINDOW)]
    dct = [[math.cos(math.pi * (k + 1) * (i + 0.5) / BANDS) for i in range(BANDS)] for k in range(CEPSTRA)]
    rows = ",\n".join("    {" + ", ".join(str(round(v * 16384)) for v in row) + "}" for row in dct)
    parts = [
        "/* SPDX-License-Identifier: Apache-2.0\n *\n * Constants of cepstra.c; made by enrol/make_tables.py.\n */",
        "#ifndef DPF_FW_TABLES_H\n#define DPF_FW_TABLES_H\n\n#include <stdint.h>\n",
        f"#define DPF_FW_FIRST_BIN {first}u\n#define DPF_FW_LAST_BIN {last}u\n",
        f"static const int16_t DPF_FW_COSINE[{FFT // 2}] = {_row(cosine)};",
        f"static const int16_t DPF_FW_SINE[{FFT // 2}] = {_row(sine)};",
        f"static const int16_t DPF_FW_HAMMING[{WINDOW}] = {_row(round(32767 * v) for v in hamming)};",
        f"static const uint8_t DPF_FW_BAND[{FFT // 2}] = {_row(bands)};",
        f"static const uint16_t DPF_FW_WEIGHT[{FFT // 2}] = {_row(weights)};",
        f"static const int16_t DPF_FW_DCT[{CEPSTRA}][{BANDS}] = {{\n{rows}}};",
        f"static const int32_t DPF_FW_LEVEL_SCALE[{CEPSTRA}] = {_row(level)};",
        f"static const int32_t DPF_FW_SLOPE_SCALE[{CEPSTRA}] = {_row(slope)};",
        f"static const uint16_t DPF_FW_LOG2[33] = {_row(round(256 * math.log2(1 + i / 32)) for i in range(33))};",
        f"static const int16_t DPF_FW_TYPICAL[{CEPSTRA}] = {_row(TYPICAL)};",
        "\n#endif",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(text(), end="")
