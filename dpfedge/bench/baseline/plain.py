# SPDX-License-Identifier: Apache-2.0
"""The script people write first: one process, the same original model files one after the other, one step at a time.

Commands come as JSON lines on stdin, answers leave as JSON lines on stdout. It uses onnxruntime, llama-cpp-python and
piper-tts as their documentation shows; of dpfedge it shares only the clause cutter, so that both sides cut alike.
"""

from __future__ import annotations

import time

STARTED = time.monotonic_ns()

import json  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from typing import Any  # noqa: E402

import llama_cpp  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402
from piper import PiperVoice  # noqa: E402
from piper.config import SynthesisConfig  # noqa: E402

from dpfedge.stage.llm.clauses import Clauses  # noqa: E402

RATE, FRAME, CONTEXT = 16000, 512, 64


class Vad:
    """Silero, frame by frame."""

    def __init__(self, path: str) -> None:
        self.session = ort.InferenceSession(path)
        self.reset()

    def reset(self) -> None:
        self.state = np.zeros((2, 1, 128), np.float32)
        self.context = np.zeros(CONTEXT, np.float32)

    def __call__(self, frame: np.ndarray[Any, Any]) -> float:
        window = np.concatenate([self.context, frame])[None]
        feeds = {"input": window, "state": self.state, "sr": np.array(RATE, np.int64)}
        out, self.state = self.session.run(None, feeds)
        self.context = frame[-CONTEXT:]
        return float(out[0, 0])


class Recogniser:
    """Moonshine's two shipped files and its greedy loop."""

    def __init__(self, encoder: str, decoder: str, tokens: str) -> None:
        self.encoder = ort.InferenceSession(encoder)
        self.decoder = ort.InferenceSession(decoder)
        self.tokens = _tokens(tokens)
        self.past = [i.name for i in self.decoder.get_inputs() if i.name.startswith("past")]
        self.out = [o.name for o in self.decoder.get_outputs()]

    def __call__(self, samples: np.ndarray[Any, Any]) -> str:
        mask = np.ones((1, len(samples)), np.int64)
        (hidden,) = self.encoder.run(None, {"input_values": samples[None], "attention_mask": mask})
        past = {name: np.zeros((1, 8, 0, 36), np.float32) for name in self.past}
        ids, token = [], 1
        for step in range(int(len(samples) / RATE * 6.5) + 1):
            feeds = {
                "input_ids": np.array([[token]], np.int64),
                "encoder_hidden_states": hidden,
                "encoder_attention_mask": mask,
                "use_cache_branch": np.array([step > 0]),
                **past,
            }
            outputs = dict(zip(self.out, self.decoder.run(None, feeds), strict=True))
            token = int(outputs["logits"][0, -1].argmax())
            if token == 2:
                break
            ids.append(token)
            for name in self.past:
                if step == 0 or ".decoder." in name:
                    past[name] = outputs[name.replace("past_key_values", "present")]
        return b"".join(self.tokens[i] for i in ids).decode("utf-8", "replace").replace("\u2581", " ").strip()


def _tokens(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        data = file.read()
    tokens, at = [], 0
    while at < len(data):
        size = data[at]
        at += 1
        if size >= 128:
            size = data[at] * 128 + size - 128
            at += 1
        tokens.append(data[at : at + size])
        at += size
    return tokens


class Assistant:
    """Everything loaded one after the other, answering one turn at a time."""

    def __init__(self, setup: dict[str, Any]) -> None:
        files = setup["files"]
        threads = setup["threads"]
        self.setup = setup
        self.vad = Vad(files["vad"])
        self.recogniser = Recogniser(files["encoder"], files["decoder"], files["tokens"])
        self.llm = llama_cpp.Llama(
            files["gguf"], n_ctx=setup["context"], n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.voice = PiperVoice.load(files["voice"], config_path=files["voice_config"])

    def warm(self) -> None:
        """One inference each, so that the first turn is not the first run."""
        self.vad(np.zeros(FRAME, np.float32))
        self.recogniser(np.zeros(RATE, np.float32))
        list(self.answer("Hello"))
        list(self.voice.synthesize("Ready."))
        self.vad.reset()

    def turn(self, pcm: np.ndarray[Any, Any], silence_ms: int) -> dict[str, Any]:
        """One spoken turn at microphone pace."""
        samples = pcm.astype(np.float32) / 32768
        times = self._listen(samples, silence_ms)
        text = self.recogniser(times.pop("heard"))
        times |= {"transcript_ns": time.monotonic_ns(), "transcript": text}
        cutter = Clauses(self.setup["first_words"], self.setup["clause_words"])
        answer = []
        for delta in self.answer(text):
            times.setdefault("first_text_ns", time.monotonic_ns())
            answer.append(delta)
            for clause in cutter.push(delta):
                self._say(clause, times)
        for clause in cutter.finish():
            self._say(clause, times)
        return times | {"done_ns": time.monotonic_ns(), "text": "".join(answer)}

    def answer(self, text: str) -> Iterator[str]:
        messages = [*self.setup["prompt"], {"role": "user", "content": text}]
        stream: Any = self.llm.create_chat_completion(
            messages,
            stream=True,
            temperature=0.0,
            repeat_penalty=self.setup["repeat_penalty"],
            max_tokens=self.setup["max_tokens"],
        )
        for part in stream:
            delta = part["choices"][0]["delta"].get("content")
            if delta:
                yield delta

    def _say(self, clause: str, times: dict[str, Any]) -> None:
        for chunk in self.voice.synthesize(clause, SynthesisConfig()):
            if len(chunk.audio_int16_array):
                times.setdefault("first_audio_ns", time.monotonic_ns())

    def _listen(self, samples: np.ndarray[Any, Any], silence_ms: int) -> dict[str, Any]:
        self.vad.reset()
        quiet, speaking, start, speech_end = 0, False, 0, 0
        began = time.monotonic()
        for index in range(10**6):
            at = index * FRAME
            time.sleep(max(0.0, began + (at + FRAME) / RATE - time.monotonic()))
            frame = samples[at : at + FRAME]
            if at < len(samples) <= at + FRAME:
                # the last sample lies inside this frame
                speech_end = int((began + len(samples) / RATE) * 1e9)
            frame = np.pad(frame, (0, FRAME - len(frame)))
            speech = self.vad(frame) >= (0.35 if speaking else 0.5)
            if speech and not speaking:
                speaking, start = True, max(0, at - 10 * FRAME)
            quiet = 0 if speech else quiet + 1
            if speaking and quiet * FRAME * 1000 / RATE >= silence_ms and at >= len(samples):
                break
        heard = np.concatenate([samples[start:], np.zeros(RATE // 2, np.float32)])
        return {"end_of_speech_ns": speech_end, "endpoint_ns": time.monotonic_ns(), "heard": heard}


def main() -> int:
    """Serve commands until stdin closes."""
    setup = json.loads(sys.stdin.readline())
    assistant = Assistant(setup)
    loaded = time.monotonic_ns()
    assistant.warm()
    ready = time.monotonic_ns()
    _reply({"load_ms": (loaded - STARTED) / 1e6, "ready_ms": (ready - STARTED) / 1e6, "ready_ns": ready})
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "turn":
            pcm = np.fromfile(command["pcm"], np.int16)
            _reply(assistant.turn(pcm, command["silence_ms"]))
        else:
            _reply({"rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, **_memory()})
    return 0


def _memory() -> dict[str, int]:
    with open("/proc/self/smaps_rollup") as file:
        fields = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
    return {"rss_bytes": int(fields["Rss"].split()[0]) * 1024, "pss_bytes": int(fields["Pss"].split()[0]) * 1024}


def _reply(data: dict[str, Any]) -> None:
    print(json.dumps(data), flush=True)


if __name__ == "__main__":
    sys.exit(main())
