# SPDX-License-Identifier: Apache-2.0
"""Every bound on outside input, by name and with its reason; it checks nothing itself."""

from __future__ import annotations

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# package: sizes a reader may meet before it has verified anything
PACKAGE_ALIGN = 64 * KIB  # sections are mappable on kernels with 4, 16 and 64 KiB pages
PACKAGE_MAX_BYTES = 256 * GIB  # larger than any edge board's storage for one package
MANIFEST_MAX_BYTES = 16 * MIB  # a manifest of the largest known pipeline takes under 1 MiB
MANIFEST_MAX_DEPTH = 16  # the schema nests 8 deep
SECTIONS_MAX = 4096
NAME_MAX_BYTES = 128  # names appear in paths, logs and C buffers

# requests
BODY_MAX_BYTES = 512 * MIB  # about 4.6 hours of 16 kHz 16-bit mono; larger bodies get 413 while they arrive
JSON_BODY_MAX_BYTES = 4 * MIB
AUDIO_MAX_SECONDS = 4 * 3600
REQUESTS_MAX = 64  # places in the request table of one pipeline
SPEECH_TEXT_MAX_CHARS = 4096  # as the OpenAI speech endpoint
