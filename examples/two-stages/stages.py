# SPDX-License-Identifier: Apache-2.0
"""Two stages, each a process of its own: samples → loudness → a word."""

import numpy as np

from dpfedge.stage import Dim, Each, Kind, Port, Ports


class Loudness(Each):
    ports = Ports({"samples": Port("f32", (Dim("n", 1, 16000),))}, {"level": Port("f32", (1,))})

    def each(self, io, message):
        slot = yield from io.loan("level", (1,), "f32")
        slot.array[0] = np.sqrt(np.mean(np.square(message.array())))  # both arrays are the links' own memory
        slot.send(1, kind=Kind.DATA, turn=message.turn, captured_ns=message.captured_ns)


class Alarm(Each):
    ports = Ports({"level": Port("f32", (1,))}, {"word": Port("bytes", (Dim("bytes", 0, 64),), unit="utf-8")})

    def each(self, io, message):
        word = "loud" if message.array()[0] > self.config["above"] else "quiet"
        yield from io.text("word", Kind.DATA, word, turn=message.turn, captured_ns=message.captured_ns)
