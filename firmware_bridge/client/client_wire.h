/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes between dpf/client.h and the server's native face; dpfedge/serve/native/NATIVE.md is the protocol. Little-endian.
 */
#ifndef DPF_CLIENT_WIRE_H
#define DPF_CLIENT_WIRE_H

#include "dpf/base.h"

#define DPF_WIRE_HELLO "DPFC"
#define DPF_WIRE_WELCOME "DPFS"
#define DPF_WIRE_NO_TEXT 0xFFFFFFFFu

enum { DPF_WIRE_TEXT_MAX = 65535, DPF_WIRE_SAY_MAX = 4096, DPF_WIRE_WHY_MAX = 4096 };

/* Descriptors that come with a welcome, and rings of the arena, in this order. */
enum { DPF_WIRE_ARENA = 0, DPF_WIRE_EVENT_BELL = 1, DPF_WIRE_SOUND_BELL = 2, DPF_WIRE_FDS = 3 };
enum { DPF_WIRE_MICROPHONE = 0, DPF_WIRE_STOPS = 1, DPF_WIRE_EVENTS = 2, DPF_WIRE_SOUND = 3, DPF_WIRE_RINGS = 4 };
enum { DPF_WIRE_CLIENT = 1, DPF_WIRE_SERVER = 2 }; /* owners */

/* Kinds of the descriptors in the microphone's ring. `turn` is the request table's bound when it was sent. */
enum { DPF_WIRE_SAMPLES = 1, DPF_WIRE_COMMIT = 2, DPF_WIRE_CLEAR = 3, DPF_WIRE_SAY = 4, DPF_WIRE_RESPOND = 5, DPF_WIRE_CANCEL = 6 };


typedef struct dpf_wire_hello {
    char magic[4];
    uint16_t major, minor;
    uint32_t bytes; /* of this struct; the instructions follow */
    uint32_t flags;
    uint32_t input_hz, output_hz;
    uint32_t silence_ms;
    uint32_t max_answer_tokens;
    uint32_t instructions_bytes; /* DPF_WIRE_NO_TEXT: none */
    uint32_t reserved[7];
} dpf_wire_hello;

typedef struct dpf_wire_welcome {
    char magic[4];
    uint16_t major, minor;
    uint32_t status;    /* 0, or a dpf_client_status without its sign, and no descriptors */
    uint32_t why_bytes; /* of the text behind this struct */
    uint64_t key;       /* of the session in the arena's request table */
    uint32_t input_hz, output_hz;
    uint32_t reserved[8];
} dpf_wire_welcome;

/* Before the text of an event. */
typedef struct dpf_wire_event {
    uint32_t code, at_ms, text_bytes, more;
} dpf_wire_event;

/* The only message in the stops' ring. */
typedef struct dpf_wire_stop {
    uint32_t heard_ms, before; /* `before`: the bound of the request table that this stop set */
} dpf_wire_stop;

DPF_ASSERT(sizeof(dpf_wire_hello) == 64 && sizeof(dpf_wire_welcome) == 64, "wire layout");
DPF_ASSERT(sizeof(dpf_wire_event) == 16 && sizeof(dpf_wire_stop) == 8, "wire layout");
DPF_ASSERT(offsetof(dpf_wire_hello, instructions_bytes) == 32 && offsetof(dpf_wire_welcome, key) == 16, "wire layout");

#endif
