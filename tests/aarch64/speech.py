# SPDX-License-Identifier: Apache-2.0
"""Writes the recording of the aarch64 check to a file; without one, prints the words in it.

It is the beginning of a longer recording: an emulated core needs two minutes for the rest.
"""

from __future__ import annotations

import sys
import wave

SAID = "ever tried ever failed no matter"
FRAMES = 75_653

if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(SAID)
        sys.exit()
    from dpfedge.models import pull

    with (
        wave.open(str(pull("moonshine-speech-samples").path("beckett.wav"))) as file,
        wave.open(sys.argv[1], "wb") as out,
    ):
        out.setparams(file.getparams())
        out.writeframes(file.readframes(FRAMES))
