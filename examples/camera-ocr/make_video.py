# SPDX-License-Identifier: Apache-2.0
"""A short video of a sign for those who have none at hand: make_video.py OUT.mp4 LINE [LINE …]"""

import sys
from collections.abc import Sequence

import av
import cv2
import numpy as np

SIZE = WIDTH, HEIGHT = 640, 480


def draw(lines: Sequence[str], shift: int) -> np.ndarray:
    """u8[height, width, 3] RGB: dark letters on a light sign that moves a little, as a hand-held camera does."""
    frame = np.full((HEIGHT, WIDTH, 3), (150, 170, 190), np.uint8)
    cv2.rectangle(frame, (10 + shift, 10), (WIDTH - 30 + shift, HEIGHT - 10), (250, 250, 245), -1)
    for number, line in enumerate(lines):
        place = (30 + shift, 80 + number * min(90, 380 // len(lines)))
        cv2.putText(frame, line, place, cv2.FONT_HERSHEY_SIMPLEX, 0.95, (20, 20, 60), 2, cv2.LINE_AA)
    return frame


def write(path: str, *signs: Sequence[str], rate: int = 10, seconds: int = 2) -> None:
    """MPEG-4; with several signs they follow each other, each as long as the others."""
    with av.open(path, "w") as file:
        stream = file.add_stream("mpeg4", rate=rate)
        (stream.width, stream.height), stream.pix_fmt, stream.bit_rate = SIZE, "yuv420p", 4_000_000
        for number in range(rate * seconds):
            shown = draw(signs[number * len(signs) // (rate * seconds)], number % 10)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")))
        file.mux(stream.encode(None))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: make_video.py OUT.mp4 LINE [LINE …]")
    write(sys.argv[1], sys.argv[2:])
