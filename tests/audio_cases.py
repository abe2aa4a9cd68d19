# SPDX-License-Identifier: Apache-2.0
"""Every kind of audio file people send, made from one recording: 16 kHz mono i16 samples in, named byte strings out.

NumPy and hand-made headers write what no encoder would write; PyAV writes the rest. No ffmpeg or sox program is needed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr

RATE = 16000
Samples = Any
"""i16[n] or i16[n, channels]."""


@dataclass(frozen=True)
class Case:
    """`make()` gives the file. `expect`: `same` words as the recording, `none`, `refused`, `repeated`, or `any`.

    `exact`: a reader must give exactly the recording's samples. `skip`: why it cannot be made here.
    """

    name: str
    make: Callable[[], bytes]
    expect: str = "same"
    exact: bool = False
    skip: str = ""


def _le16(value: int) -> bytes:
    return struct.pack("<H", value)


def _le32(value: int) -> bytes:
    return struct.pack("<I", value)


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    """One RIFF chunk with its pad byte."""
    return name + _le32(len(body) if size is None else size) + body + b"\0" * (len(body) % 2)


def fmt(tag: int, channels: int, rate: int, bits: int) -> bytes:
    """A 16-byte format chunk."""
    align = channels * bits // 8
    return chunk(b"fmt ", struct.pack("<HHIIHH", tag, channels, rate, rate * align, align, bits))


def riff(*chunks: bytes, magic: bytes = b"RIFF", size: int | None = None) -> bytes:
    """A whole file."""
    body = b"WAVE" + b"".join(chunks)
    return magic + _le32(len(body) if size is None else size) + body


def wav(samples: Samples, rate: int = RATE, *, tag: int = 1, bits: int = 16) -> bytes:
    """A canonical 44-byte header and little-endian samples."""
    channels = samples.shape[1] if samples.ndim == 2 else 1
    return riff(fmt(tag, channels, rate, bits), chunk(b"data", samples.tobytes()))


def extensible(data: bytes, channels: int, rate: int, bits: int) -> bytes:
    """A WAVE_FORMAT_EXTENSIBLE file of PCM."""
    align = channels * bits // 8
    guid = _le16(1) + bytes.fromhex("000000001000800000aa00389b71")
    body = struct.pack("<HHIIHHHHI", 0xFFFE, channels, rate, rate * align, align, bits, 22, bits, 3) + guid
    return riff(chunk(b"fmt ", body), chunk(b"data", data))


def poke(data: bytes, offset: int, value: bytes) -> bytes:
    """`data` with some bytes overwritten."""
    return data[:offset] + value + data[offset + len(value) :]


def to_rate(samples: Samples, rate: int) -> Samples:
    """i16 samples at another rate."""
    return _i16(soxr.resample(samples.astype(np.float64) / 32768, RATE, rate))


def _i16(floats: Any) -> Samples:
    return np.clip(np.round(floats * 32768), -32768, 32767).astype("<i2")


def _s24(samples: Samples) -> bytes:
    wide = samples.reshape(-1).astype("<i4") << 8
    return wide.view("u1").reshape(-1, 4)[:, :3].tobytes()


def _floats(samples: Samples) -> Any:
    return samples.astype(np.float64) / 32768


def mulaw(samples: Samples) -> bytes:
    """G.711 µ-law, bit by bit as the standard draws it."""
    value = samples.astype(np.int32)
    sign = np.where(value < 0, 0x80, 0)
    value = np.minimum(np.abs(value), 32635) + 132
    exponent = np.floor(np.log2(value)).astype(np.int32) - 7
    mantissa = value >> (exponent + 3) & 0x0F
    return (~(sign | exponent << 4 | mantissa) & 0xFF).astype(np.uint8).tobytes()


def alaw(samples: Samples) -> bytes:
    """G.711 A-law."""
    value = samples.astype(np.int32)
    sign = np.where(value >= 0, 0x80, 0)
    value = np.minimum(np.where(value < 0, -value - 1, value), 32767)
    exponent = np.maximum(np.floor(np.log2(np.maximum(value, 1))).astype(np.int32) - 7, 0)
    mantissa = np.where(exponent == 0, value >> 4, value >> (exponent + 3)) & 0x0F
    return ((sign | exponent << 4 | mantissa) ^ 0x55).astype(np.uint8).tobytes()


def encoded(samples: Samples, codec: str, container: str, *, rate: int = RATE, **settings: Any) -> bytes:
    """`samples` (at 16 kHz) through one of PyAV's encoders."""
    import av

    buffer = io.BytesIO()
    samples = samples if rate == RATE else to_rate(samples, rate)
    with av.open(buffer, "w", format=container, options=settings.pop("options", {})) as out:
        for key, value in settings.pop("metadata", {}).items():
            out.metadata[key] = value
        stream: Any = out.add_stream(codec, rate=rate, layout="mono")
        if "bit_rate" in settings:
            stream.bit_rate = settings["bit_rate"]
        for start in range(0, len(samples), 4096):
            frame = av.AudioFrame.from_ndarray(samples[None, start : start + 4096], "s16", "mono")
            frame.sample_rate = rate
            frame.pts = start
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return buffer.getvalue()


def _missing(codec: str) -> str:
    try:
        import av

        av.Codec(codec, "w")
    except ImportError:
        return "PyAV is not installed"
    except ValueError:
        return f"this PyAV has no encoder {codec}"
    return ""


def brown(seconds: float, amplitude: float, seed: int = 7) -> Any:
    """Noise with most of its power below 100 Hz, like a car on a road; f64[n], standard deviation `amplitude` / 3.5."""
    count = int(seconds * RATE)
    white = np.random.default_rng(seed).uniform(-1, 1, count + 4096)
    spectrum = np.fft.rfft(white) / (1.02 - np.exp(-2j * np.pi * np.fft.rfftfreq(white.size)))
    return np.fft.irfft(spectrum, white.size)[:count] * 0.02 * 3.5 * amplitude


def _beside(samples: Samples, other: Any) -> Samples:
    return np.stack([samples, other[: len(samples)].astype("<i2")], axis=1)


def _echo(samples: Samples) -> Samples:
    dry = 0.8 * _floats(samples)
    delay = int(0.06 * RATE)
    wet = dry.copy()
    wet[delay:] += 0.4 * dry[:-delay]
    return _i16(0.7 * wet)


def _repeated(samples: Samples, seconds: float) -> Samples:
    return np.resize(samples, int(seconds * RATE))


def formats(x: Samples) -> Iterator[Case]:
    """A: right files in the formats users have."""
    stereo = np.repeat(to_rate(x, 44100)[:, None], 2, axis=1)
    yield Case("a01_44k1_stereo_s24_extensible.wav", lambda: extensible(_s24(stereo), 2, 44100, 24))
    yield Case("a02_44k1_stereo_s24_plain.wav", lambda: riff(fmt(1, 2, 44100, 24), chunk(b"data", _s24(stereo))))
    yield Case("a03_f32.wav", lambda: wav(_floats(x).astype("<f4"), tag=3, bits=32), exact=True)
    yield Case("a04_f64.wav", lambda: wav(_floats(x).astype("<f8"), tag=3, bits=64), exact=True)
    yield Case("a06_48k_s32.wav", lambda: wav(to_rate(x, 48000).astype("<i4") << 16, 48000, bits=32))
    yield Case("a07_8k_u8.wav", lambda: wav(((to_rate(x, 8000) >> 8) + 128).astype("u1"), 8000, bits=8))
    yield Case("a08_8k_mulaw.wav", lambda: wav(np.frombuffer(mulaw(to_rate(x, 8000)), "u1"), 8000, tag=7, bits=8))
    yield Case("a09_8k_alaw.wav", lambda: wav(np.frombuffer(alaw(to_rate(x, 8000)), "u1"), 8000, tag=6, bits=8))
    yield _coded("a10_ima_adpcm.wav", x, "adpcm_ima_wav", "wav")
    yield Case("a13_96k_s24.wav", lambda: riff(fmt(1, 1, 96000, 24), chunk(b"data", _s24(to_rate(x, 96000)))))
    yield Case("a16_rf64.wav", lambda: _rf64(x), exact=True)
    yield _coded("a18.aiff", x, "pcm_s16be", "aiff", exact=True)
    yield _coded("a19.au", x, "pcm_s16be", "au", exact=True)
    yield _coded("a20.flac", x, "flac", "flac", exact=True)
    yield _coded("a21_id3v2.mp3", x, "libmp3lame", "mp3", bit_rate=64000, metadata={"title": "Fahrt 1"})
    yield _coded("a22.ogg", x, "libopus", "ogg", rate=48000, bit_rate=24000)
    yield _coded("a23_mediarecorder_live.webm", x, "libopus", "webm", rate=48000, bit_rate=24000, options={"live": "1"})
    yield _coded("a24_moov_at_end.m4a", x, "aac", "ipod", bit_rate=64000)
    yield _coded("a26_phone.amr", x, "libopencore_amrnb", "amr", rate=8000, bit_rate=12200)
    yield Case("a27_headerless_16k_s16.pcm", x.tobytes, expect="refused")


def _coded(name: str, x: Samples, codec: str, container: str, *, exact: bool = False, **settings: Any) -> Case:
    return Case(name, lambda: encoded(x, codec, container, **settings), exact=exact, skip=_missing(codec))


def _rf64(x: Samples) -> bytes:
    ds64 = chunk(b"ds64", struct.pack("<QQQI", 36 + 36 + 2 * len(x), 2 * len(x), len(x), 0))
    data = chunk(b"data", x.tobytes(), 0xFFFFFFFF)
    return riff(ds64, fmt(1, 1, RATE, 16), data, magic=b"RF64", size=0xFFFFFFFF)


def channels(x: Samples) -> Iterator[Case]:
    """B: more than one channel."""
    yield Case("b01_left_silent.wav", lambda: wav(np.stack([np.zeros_like(x), x], axis=1)))
    yield Case("b04_ch1_speech_ch2_road.wav", lambda: wav(_beside(x, 32767 * brown(len(x) / RATE, 0.3))))
    yield Case("b05_4ch_mic_array.wav", lambda: wav(np.repeat(x[:, None], 4, axis=1)))


def chunks(x: Samples) -> Iterator[Case]:
    """C: chunks around the data."""
    form, data = fmt(1, 1, RATE, 16), chunk(b"data", x.tobytes())
    info = chunk(b"LIST", b"INFOISFT\x0e\0\0\0Lavf57.56.101\0")
    yield Case("c01_list_before_data.wav", lambda: riff(form, info, data), exact=True)
    long = chunk(b"LIST", b"INFO" + chunk(b"ICMT", b"x" * 9001))
    yield Case("c02_list_9kB_before_data.wav", lambda: riff(form, long, data), exact=True)
    bext = chunk(b"bext", b"recorder".ljust(602, b"\0"))
    yield Case("c03_bext.wav", lambda: riff(bext, form, data), exact=True)
    junk, filler = chunk(b"JUNK", bytes(28)), chunk(b"FLLR", bytes(4056))
    yield Case("c04_junk_before_fmt_fllr.wav", lambda: riff(junk, form, filler, data), exact=True)
    yield Case("c05_list_after_data.wav", lambda: riff(form, data, info), exact=True)
    yield Case("c08_odd_chunk_padded_before_data.wav", lambda: riff(form, chunk(b"abcd", b"xyz"), data), exact=True)
    yield Case("c09_odd_chunk_unpadded.wav", lambda: riff(form, b"abcd\x03\0\0\0xyz", data), exact=True)


def sizes(x: Samples) -> Iterator[Case]:
    """D: wrong sizes, from recorders that stream or die."""
    whole, form = wav(x), fmt(1, 1, RATE, 16)

    def claimed(riff_size: int, data_size: int) -> Callable[[], bytes]:
        return lambda: poke(poke(whole, 4, _le32(riff_size)), 40, _le32(data_size))

    info = chunk(b"LIST", b"INFOISFT\x0e\0\0\0Lavf57.56.101\0")
    piped = riff(form, info, chunk(b"data", x.tobytes(), 0xFFFFFFFF), size=0xFFFFFFFF)
    yield Case("d01_ffmpeg_pipe_ffffffff.wav", lambda: piped, exact=True)
    yield Case("d02_data_size_0.wav", claimed(36, 0), exact=True)
    yield Case("d03_arecord_pipe_80000000.wav", claimed(0x80000024, 0x80000000), exact=True)
    yield Case("d04_7fffffff.wav", claimed(0x7FFFFFFF, 0x7FFFFFFF), exact=True)
    yield Case("d05_2000000000.wav", claimed(2_000_000_036, 2_000_000_000), exact=True)
    yield Case("d06_riff_size_wrong_only.wav", lambda: poke(whole, 4, _le32(16)), exact=True)
    yield Case("d07_data_size_half.wav", lambda: poke(whole, 40, _le32(len(x) // 2 * 2)), exact=True)
    yield Case("d08_sox_pipe.wav", claimed(0x7FFFF024, 0x7FFFF000), exact=True)
    yield Case("d09_truncated_60pct.wav", lambda: whole[: len(whole) * 6 // 10], expect="any")
    yield Case("d11_header_only.wav", lambda: whole[:44], expect="refused")
    yield Case("d12_cut_in_header.wav", lambda: whole[:30], expect="refused")
    yield Case("d13_zero_bytes.wav", lambda: b"", expect="refused")


def lies(x: Samples) -> Iterator[Case]:
    """E: headers that make readers divide by zero or read noise, and files that are something else."""
    whole = wav(x)
    for name, offset, value in (
        ("e01_channels_0", 22, b"\0\0"),
        ("e02_rate_0", 24, bytes(4)),
        ("e03_bits_0", 34, b"\0\0"),
        ("e04_blockalign_0", 32, b"\0\0"),
        ("e05_blockalign_7", 32, b"\7\0"),
        ("e06_channels_65535", 22, b"\xff\xff"),
        ("e07_tag_unknown", 20, b"\x34\x12"),
    ):
        yield Case(f"{name}.wav", lambda offset=offset, value=value: poke(whole, offset, value), expect="refused")
    yield _coded("e08_mp3_named.wav", x, "libmp3lame", "mp3", bit_rate=64000)
    yield Case("e09_wav_named.mp3", lambda: whole, exact=True)
    yield Case("e10_html_named.wav", lambda: b"<!doctype html><title>404</title>", expect="refused")
    noise = np.random.default_rng(7).integers(-32768, 32767, 32768, dtype="<i2")
    yield Case("e11_noise_named.wav", noise.tobytes, expect="refused")
    yield Case("e12_random_after_riff.wav", lambda: b"RIFF" + bytes(4) + b"WAVE" + noise.tobytes(), expect="refused")


def lengths(x: Samples) -> Iterator[Case]:
    """F: from no sample to half an hour."""
    at = int(0.5 * RATE)
    yield Case("f01_0_samples.wav", lambda: wav(x[:0]), expect="none")
    yield Case("f02_1_sample.wav", lambda: wav(x[at : at + 1]), expect="none")
    yield Case("f03_5ms.wav", lambda: wav(x[at : at + 80]), expect="none")
    yield Case("f04_100ms.wav", lambda: wav(x[at : at + 1600]), expect="any")
    yield Case("f06_9.2s.wav", lambda: wav(_repeated(x, 9.2)), expect="any")
    yield Case("f08_31s.wav", lambda: wav(_repeated(x, 31)), expect="repeated")
    yield Case("f09_30min.wav", lambda: wav(_repeated(x, 1800)), expect="repeated")
    loud = np.flatnonzero(np.abs(x.astype(np.int32)) > 800)
    last = int(loud[-1]) if loud.size else len(x) - 1
    yield Case("f10_cut_after_last_word.wav", lambda: wav(x[: last + 1]))
    yield Case("f11_60s_silence_first.wav", lambda: wav(np.concatenate([np.zeros(60 * RATE, "<i2"), x])))


def signals(x: Samples) -> Iterator[Case]:
    """G: what is heard."""
    hiss = np.random.default_rng(7).uniform(-0.001, 0.001, 10 * RATE)
    tone = np.sin(2 * np.pi * 1000 * np.arange(10 * RATE) / RATE) / 8
    peak = max(1, int(np.abs(x.astype(np.int32)).max()))
    yield Case("g01_digital_zero_10s.wav", lambda: wav(np.zeros(10 * RATE, "<i2")), expect="none")
    yield Case("g02_hiss_10s.wav", lambda: wav(_i16(hiss)), expect="none")
    yield Case("g03_road_noise_60s.wav", lambda: wav(_i16(brown(60, 0.5))), expect="none")
    yield Case("g04_tone_10s.wav", lambda: wav(_i16(tone)), expect="none")
    yield Case("g05_dc_offset.wav", lambda: wav(np.clip(x.astype(np.int32) // 2 + 12000, -32768, 32767).astype("<i2")))
    yield Case("g06_minus_50dB.wav", lambda: wav(_i16(_floats(x) * 32768 / peak * 10 ** (-50 / 20))))
    road = brown(len(x) / RATE, 0.25)
    yield Case("g08_speech_plus_road.wav", lambda: wav(_i16(_floats(x) + road)), expect="any")
    yield Case("g10_cabin_echo.wav", lambda: wav(_echo(x)))


def cases(x: Samples) -> Mapping[str, Case]:
    """Every case by its short name (`a01`, `d07`, …)."""
    x = np.ascontiguousarray(x, "<i2")
    makers = (formats, channels, chunks, sizes, lies, lengths, signals)
    return {case.name[:3]: case for make in makers for case in make(x)}
