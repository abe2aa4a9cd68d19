# SPDX-License-Identifier: Apache-2.0
"""A short video of a sign for those who have none at hand: make_video.py OUT.mp4 LINE [LINE …]"""

import sys

import av
import cv2
import numpy as np

SIZE = WIDTH, HEIGHT = 640, 480
RATE, SECONDS = 10, 2


def draw(lines: list[str], shift: int) -> np.ndarray:
    """u8[height, width, 3] RGB: dark letters on a light sign that moves a little, as a hand-held camera does."""
    frame = np.full((HEIGHT, WIDTH, 3), (150, 170, 190), np.uint8)
    cv2.rectangle(frame, (10 + shift, 10), (WIDTH - 30 + shift, HEIGHT - 10), (250, 250, 245), -1)
    for number, line in enumerate(lines):
        place = (30 + shift, 80 + number * min(90, 380 // len(lines)))
        cv2.putText(frame, line, place, cv2.FONT_HERSHEY_SIMPLEX, 0.95, (20, 20, 60), 2, cv2.LINE_AA)
    return frame


def write(path: str, lines: list[str]) -> None:
    """Two seconds of the sign, as MPEG-4."""
    with av.open(path, "w") as file:
        stream = file.add_stream("mpeg4", rate=RATE)
        (stream.width, stream.height), stream.pix_fmt, stream.bit_rate = SIZE, "yuv420p", 4_000_000
        for number in range(RATE * SECONDS):
            frame = av.VideoFrame.from_ndarray(draw(lines, number % 10), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: make_video.py OUT.mp4 LINE [LINE …]")
    write(sys.argv[1], sys.argv[2:])
