# SPDX-License-Identifier: Apache-2.0
"""Every bound on outside input, by name and with its reason; it checks nothing itself."""

from __future__ import annotations

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# package: sizes a reader may meet before it has verified anything
PACKAGE_ALIGN = 64 * KIB  # sections are mappable on kernels with 4, 16 and 64 KiB pages
PACKAGE_MAX_BYTES = 256 * GIB  # larger than any edge board's storage for one package
MANIFEST_MAX_BYTES = 16 * MIB  # a manifest of the largest known pipeline takes under 1 MiB
MANIFEST_MAX_DEPTH = 16  # the schema nests 8 deep
MANIFEST_MAX_ITEMS = 1 << 20  # CBOR items; keeps a hostile manifest of one-byte items from filling memory with objects
SIGNATURE_MAX_BYTES = 1 * MIB  # room for many signatures with certificate chains
SIGNATURES_MAX = 16  # supplier, integrator, OEM, and each of their keys while it is being changed
TEXT_MAX_BYTES = 64 * KIB  # descriptive text of a manifest; whole licences are sections
SECTIONS_MAX = 4096
MODELS_MAX = 1024  # of one package; the demo has 4
TARGETS_MAX = 256  # one for each board and backend of a large fleet
GRAPHS_MAX = 1024  # of one model in one target
PORTS_MAX = 1024  # inputs or outputs of one graph; a 64-layer decoder has about 260
WHITELIST_MAX_TERMS = 256  # of one operator
WHITELIST_MAX_DEPTH = 8  # operators inside each other; compiled targets nest 3 deep
WHITELIST_MAX_OPERATORS = 1024  # of one expression; evaluating them takes about a millisecond for each device
MEMORY_MAX_BYTES = 1 << 50  # no machine has a pebibyte
TENSOR_MAX_RANK = 8  # the deepest shape any importer produces is 5
TOKEN_MAX = (1 << 31) - 1  # token ids fit a C int32
PREFIX_TOKENS_MAX = 1 << 17  # the longest context of any known model family
PREFIX_KEY_MAX_BYTES = 1 * KIB  # a list of CPU features takes under 200 bytes
TENSOR_MAX_DIM = (1 << 31) - 1  # dimensions fit a C int32 on every backend
GOLDEN_MAX = 1024  # records of a package; the demo has one for each graph, about 20
GOLDEN_TENSORS_MAX = 16384  # of all records; each is compared with the ports of its graph in every target
GOLDEN_TENSOR_MAX_BYTES = 1 * GIB  # of one input or output of a golden run; a key cache of 128k tokens takes 512 MiB
NAME_MAX_BYTES = 128  # names appear in paths, logs and C buffers

# package store
STORE_FILE_MAX_BYTES = 1 * MIB  # slots, a note, or a record, which takes 60 KiB when it samples the most pages

# keys and trust directories
KEY_FILE_MAX_BYTES = 8 * KIB  # an Ed25519 key in PEM takes under 400 bytes
TRUST_KEYS_MAX = 256  # of one directory; every start reads them all
REVOKED_MAX_BYTES = 1 * MIB  # ten thousand lines

# requests
BODY_MAX_BYTES = 512 * MIB  # about 4.6 hours of 16 kHz 16-bit mono; larger bodies get 413 while they arrive
JSON_BODY_MAX_BYTES = 4 * MIB
BODY_PAUSE_MAX_S = 30  # without a byte of a request's body; a recorder on a mobile network comes back within seconds
BODY_RATE_MIN = 64  # bytes/s on average behind the first pause; telephone speech has 1000 and more
AUDIO_MAX_SECONDS = 4 * 3600
REQUESTS_MAX = 64  # places in the request table of one pipeline
WAV_HEADER_MAX_BYTES = 1 * MIB  # pictures and notes before the format chunk; recorders write under 16 KiB
WAV_CHUNK_MAX_BYTES = 64 * MIB  # a longer chunk behind the samples is taken for more samples
SPEECH_TEXT_MAX_CHARS = 4096  # as the OpenAI speech endpoint

# frames
FRAME_MAX_PIXELS = 7680 * 4320  # 8K; a larger frame takes over 100 MB once it is RGB
FRAME_MAX_SIDE = 8192  # of what a camera may hand on: the pixels above, in any proportions a sensor has
LINES_MAX = 1024  # of text in one frame; a full page of small print has about 80
LINES_MAX_COLUMNS = 65536  # of all lines of a frame side by side; at 48 rows they take 9 MiB

# configuration files
YAML_MAX_BYTES = 1 * MIB  # the largest known board or pipeline file takes under 16 KiB
YAML_MAX_DEPTH = 32

# links: what the largest message of each kind takes
PROMPT_MAX_BYTES = 256 * KIB  # ten times the text that fills the largest context this runtime serves
UTTERANCE_MAX_SAMPLES = (
    30 * 16000
)  # the longest utterance a package may allow (28 s) with pre-roll and trailing silence
VOICE_CHUNK_MAX_SAMPLES = 1 << 17  # 5.9 s at 22.05 kHz; longer clauses leave in several chunks
LINK_TEXT_SLOTS = 64
BACKLOG_LEASES = 4  # unread audio chunks of one request that may stay in the link; older ones move to its own memory
EVENTS_KEPT = 32  # of a pipeline's last events; a restart, a step of the ladder
LADDER_STEPS_MAX = 16  # of one pipeline; each is looked at every second
JOIN_DEPTH_MAX = 64  # messages of one input that wait for those of another; each keeps a slot of its link
FLOW_AGAIN_MAX_BYTES = 256 * KIB  # of a request's input that is kept to give it to a restarted stage again
FLOW_BACKLOG_MAX_BYTES = 64 * MIB  # of outputs of one request that nobody reads; more end the request
DEADLINE_MAX_S = 86400  # a request that may take longer than a day has no deadline
EVENTS_MAX = 8192  # events of one request nobody reads; more end the request
ERROR_PART_MAX_BYTES = 600  # of each of an error's five parts between processes; together they fit the smallest slot
STAGE_RESTARTS_MAX = 5  # deaths within STAGE_RESTARTS_WINDOW_S that open the circuit breaker until it has passed
STAGE_RESTARTS_WINDOW_S = 30
STAGE_START_MAX_S = 120  # a cold board maps 4 GB of weights from slow flash in under a minute

# the machine
PROBE_FILE_MAX_BYTES = 4 * MIB  # /proc/cpuinfo of a 1024-core server takes 1.6 MiB
PROBE_ENTRIES_MAX = 16384  # of one folder; the PCI bus of a large server has about a thousand functions
CORES_MAX = 8192  # the largest NR_CPUS a Linux configuration allows
RECORDING_MAX_BYTES = 64 * MIB  # of the tar file of a recorded machine; one of 512 cores takes 4 MiB

# the flight recorder
FLIGHT_MAX_SECONDS = 600  # with audio 225 MiB of file; who wants more wants a log
FLIGHT_MAX_BYTES = 256 * MIB  # the file of the longest recording, with its header
TURN_LINE_MAX_BYTES = 8 * KIB  # of one line of the turn log; a spoken turn takes 1.5 KiB
TURN_QUEUE_MAX = 1024  # turns not yet logged or traced; more than a minute of the busiest server

# routing
ROUTE_FILE_MAX_BYTES = 32 * MIB  # of a list of instances; 65535 with the longest names take 24 MiB
ROUTE_LOG_MAX_BYTES = 64 * MIB  # of a log before it starts anew; about 400,000 decisions, and the last one is kept too
ROUTE_LINE_MAX_BYTES = 32 * MIB  # of one line of it; the first line names every instance

# the native face
NATIVE_SESSIONS_MAX = 8  # at a time; each reserves 1.3 MiB, and a car has one head unit and a few seats
NATIVE_WAITING_MAX = 16  # connections that have not said what they want, or are being told no
NATIVE_HELLO_MAX_S = 2  # from connecting to the hello, which a client sends at once
NATIVE_HELLO_MAX_BYTES = 64 + 65_535  # the instructions of a session are at most as long as a realtime session's
NATIVE_BACKLOG_MAX_BYTES = 8 * MIB  # of sound that a client has no room for; three minutes at 22.05 kHz

# forms
FORM_FIELDS_MAX = 64  # the transcription endpoint has 12 parameters
FORM_FIELD_MAX_BYTES = 64 * KIB
