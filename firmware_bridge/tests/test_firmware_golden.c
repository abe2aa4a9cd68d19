/* SPDX-License-Identifier: Apache-2.0
 *
 * The firmware on any machine, of any word size and byte order, without an operating system: the ear's numbers, the bytes of a
 * frame, and a whole core behind frames that the test writes itself. Needs DPF_FW_RPMSG. Prints what it found, or what is wrong.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core.h"
#include "dpf/xxh64.h"
#include "phrases.h"
#include "port.h"

#define CHECK(condition)                                             \
    do {                                                             \
        if (!(condition)) {                                          \
            printf("firmware, golden: not so: %s\n", #condition);    \
            exit(1);                                                 \
        }                                                            \
    } while (0)

#define CEPSTRA_HASH UINT64_C(0x3f25e760381feaa0)
#define ECHO_HASH UINT64_C(0xf5ae054f34fae976)

enum { FRAMES = 294, MEMORY = 65536, PLACE_BYTES = 4096, SOUND_AT = 40960 };

static dpf_fw_core core;
static uint64_t memory[MEMORY / 8];
static uint32_t now;

uint64_t dpf_fw_port_now_ns(void) {
    return now;
}

void dpf_fw_port_doorbell(uint32_t session) {
    (void)session;
}

void dpf_fw_port_clean(const void *from, uint32_t nbytes) {
    (void)from, (void)nbytes;
}

void dpf_fw_port_invalidate(const void *from, uint32_t nbytes) {
    (void)from, (void)nbytes;
}

/* Noise, and square waves that get louder: every band and the whole range of loudness. */
static int16_t signal(uint32_t sample) {
    static uint32_t state = 1;
    if (sample == 0) state = 1;
    state = state * 1664525u + 1013904223u;
    int32_t noise = (int32_t)(state >> 22) - 512;
    int32_t level = (int32_t)(sample / 8u % 16384u);
    int32_t tone = sample / (7u + sample / 4000u) % 2u == 0u ? level : -level;
    return (int16_t)(noise + tone);
}

static void test_cepstra(void) {
    static dpf_fw_features ear;
    int16_t hop[DPF_FW_HOP];
    dpf_fw_frame frame;
    uint64_t hash = 0;
    uint32_t frames = 0;
    int32_t loudest = 0;
    dpf_fw_features_init(&ear);
    for (uint32_t at = 0; at < 300u * DPF_FW_HOP; at += DPF_FW_HOP) {
        for (uint32_t i = 0; i < DPF_FW_HOP; i++) hop[i] = signal(at + i);
        if (dpf_fw_features_push(&ear, hop, &frame)) {
            hash = dpf_xxh64(frame.dims, DPF_FW_DIMS, hash);
            loudest = frame.loudness > loudest ? frame.loudness : loudest;
            frames++;
        }
    }
    CHECK(dpf_fw_log2(0) == 0 && dpf_fw_log2(1) == 0 && dpf_fw_log2(2) == 256 && dpf_fw_log2(3) == 406);
    CHECK(dpf_fw_log2(UINT64_MAX) == 64 * 256 - 1);
    if (hash != CEPSTRA_HASH || frames != FRAMES) printf("cepstra: %u frames, hash %llx\n", (unsigned)frames, (unsigned long long)hash);
    CHECK(frames == FRAMES && hash == CEPSTRA_HASH);
}

static void test_echo(void) {
    static dpf_fw_echo echo;
    static int16_t room[64];
    int16_t captured[DPF_FW_BLOCK], played[DPF_FW_BLOCK], left[DPF_FW_BLOCK];
    uint64_t hash = 0, before = 0, after = 0;
    dpf_fw_echo_init(&echo);
    for (uint32_t at = 0; at < 200u * DPF_FW_BLOCK; at += DPF_FW_BLOCK) {
        for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) {
            played[i] = signal(at + i);
            captured[i] = (int16_t)(room[(at + i) % 64u] / 2 - room[(at + i + 31u) % 64u] / 4); /* 64 and 33 samples ago */
            room[(at + i) % 64u] = played[i];
        }
        dpf_fw_echo_cancel(&echo, captured, played, left, DPF_FW_BLOCK);
        for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) {
            unsigned char bytes[2] = {(unsigned char)left[i], (unsigned char)((uint16_t)left[i] >> 8)};
            hash = dpf_xxh64(bytes, 2, hash);
            before += (uint64_t)((int32_t)captured[i] * captured[i]);
            after += at < 100u * DPF_FW_BLOCK ? 0 : (uint64_t)((int32_t)left[i] * left[i]);
        }
    }
    if (hash != ECHO_HASH) printf("echo: hash %llx, %llx of %llx left\n", (unsigned long long)hash, (unsigned long long)after, (unsigned long long)before);
    CHECK(hash == ECHO_HASH && after * 1000u < before);
}

/* A template is heard when it is said, at 3/4 and at 4/3 of its speed too; never backwards, and once. */
static uint32_t say(dpf_fw_keyword *keyword, const dpf_fw_template *one, uint32_t numerator, uint32_t denominator) {
    dpf_fw_frame frame;
    uint32_t heard = 0, times = 0, count = one->length * numerator / denominator;
    CHECK(dpf_fw_keyword_init(keyword, &DPF_FW_PHRASES));
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < DPF_FW_DIMS; k++) frame.dims[k] = one->frames[i * denominator / numerator][k];
        uint32_t phrase = dpf_fw_keyword_push(keyword, &frame);
        heard += phrase;
        times += phrase != 0u;
    }
    return times == 1u ? heard : 0u;
}

static void test_keyword(void) {
    static dpf_fw_keyword keyword;
    for (uint32_t i = 0; i < DPF_FW_PHRASES.count; i++) {
        const dpf_fw_template *one = &DPF_FW_PHRASES.templates[i];
        CHECK(say(&keyword, one, 1, 1) == one->phrase);
        CHECK(say(&keyword, one, 3, 4) == one->phrase);
        CHECK(say(&keyword, one, 4, 3) == one->phrase);
    }
    dpf_fw_frame frame;
    CHECK(dpf_fw_keyword_init(&keyword, &DPF_FW_PHRASES));
    for (uint32_t i = 0; i < 2; i++) {
        const dpf_fw_template *one = &DPF_FW_PHRASES.templates[i];
        for (uint32_t at = one->length; at > 0u; at--) {
            for (uint32_t k = 0; k < DPF_FW_DIMS; k++) frame.dims[k] = one->frames[at - 1u][k];
            CHECK(dpf_fw_keyword_push(&keyword, &frame) == 0u);
        }
    }
}

static void test_frame(void) {
    static const unsigned char GOLDEN_FRAME[56] = {
        0x44, 0x46, 1, 1, 0x04, 0x03, 0x02, 0x01, 0x08, 0x07, 0x06, 0x05, 0x0c, 0x0b, 0x0a, 0x09, /* head */
        2, 1, 0x22, 0x11, 0x66, 0x55, 0x44, 0x33, 0xaa, 0x99, 0x88, 0x77, 0xee, 0xdd, 0xcc, 0xbb, 0x04, 0x03, 0x02, 0x01,
        0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31};
    const dpf_fw_frame_head head = {.sequence = 0x01020304, .bound = 0x05060708, .heard_ms = 0x090a0b0c, .count = 1};
    const dpf_fw_item item = {.request = UINT64_C(0x2122232425262728), .captured_ns = UINT64_C(0x3132333435363738), .slot = 0x33445566,
                              .offset = 0x778899aa, .nbytes = 0xbbccddee, .turn = 0x01020304, .generation = 0x11121314, .code = 0x1122,
                              .kind = 2, .flags = 1};
    unsigned char frame[DPF_FW_RPMSG_BYTES];
    dpf_fw_frame_head head_back;
    dpf_fw_item back;
    CHECK(dpf_fw_frame_write_head(frame, &head) == sizeof GOLDEN_FRAME);
    dpf_fw_frame_write_item(frame, 0, &item);
    for (uint32_t i = 0; i < sizeof GOLDEN_FRAME; i++) CHECK(frame[i] == GOLDEN_FRAME[i]);
    CHECK(dpf_fw_frame_read_head(GOLDEN_FRAME, sizeof GOLDEN_FRAME, &head_back) && head_back.bound == head.bound && head_back.count == 1);
    dpf_fw_frame_read_item(GOLDEN_FRAME, 0, &back);
    CHECK(back.request == item.request && back.captured_ns == item.captured_ns && back.nbytes == item.nbytes && back.code == item.code);
    CHECK(!dpf_fw_frame_read_head(GOLDEN_FRAME, sizeof GOLDEN_FRAME - 1u, &head_back));
    CHECK(!dpf_fw_frame_read_head(GOLDEN_FRAME, 15, &head_back));
}

/* ---- a whole core: the test is Linux ---- */

static void send_items(const dpf_fw_item *items, uint32_t count) {
    unsigned char frame[DPF_FW_RPMSG_BYTES];
    dpf_fw_frame_head head = {.count = count};
    uint32_t nbytes = dpf_fw_frame_write_head(frame, &head);
    for (uint32_t i = 0; i < count; i++) dpf_fw_frame_write_item(frame, i, &items[i]);
    dpf_fw_link_receive(&core.instances[0].link, frame, nbytes);
}

static void lend(uint32_t slot) {
    dpf_fw_item item = {.kind = DPF_FW_ITEM_PLACE, .slot = slot, .offset = slot * PLACE_BYTES, .nbytes = PLACE_BYTES, .generation = slot + 1};
    send_items(&item, 1);
}

static uint32_t next_sample, bound;

/* Reads what the core says: samples go on, places are lent again. */
static void hear(bool exact) {
    dpf_fw_link *link = &core.instances[0].link;
    unsigned char frame[DPF_FW_RPMSG_BYTES];
    dpf_fw_frame_head head;
    uint32_t nbytes = dpf_fw_link_frame(link, frame);
    if (nbytes == 0) return;
    dpf_fw_link_sent(link, frame);
    CHECK(nbytes <= DPF_FW_RPMSG_BYTES && dpf_fw_frame_read_head(frame, nbytes, &head));
    bound = head.bound;
    for (uint32_t i = 0; i < head.count; i++) {
        dpf_fw_item item;
        dpf_fw_frame_read_item(frame, i, &item);
        if (item.kind != DPF_FW_ITEM_SAMPLES) continue;
        const int16_t *samples = (const int16_t *)(const void *)((unsigned char *)memory + item.slot * PLACE_BYTES);
        CHECK(item.generation == item.slot + 1 && item.nbytes == 1280);
        for (uint32_t at = 0; exact && at < item.nbytes / 2; at++) CHECK((uint16_t)samples[at] == (uint16_t)next_sample++);
        lend(item.slot);
    }
}

static void test_core(void) {
    static const dpf_fw_config CONFIG = {.phrases = &DPF_FW_PHRASES};
    int16_t captured[DPF_FW_BLOCK], played[DPF_FW_BLOCK];
    int16_t *sound = (int16_t *)(void *)((unsigned char *)memory + SOUND_AT);
    CHECK(dpf_fw_core_init(&core, &CONFIG));
    dpf_fw_link_open(&core.instances[0].link, memory, sizeof memory);
    core.instance_count = 1;
    for (uint32_t slot = 0; slot < 8; slot++) lend(slot);
    for (uint32_t tick = 0; tick < 100; tick++) {
        now = tick;
        for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) captured[i] = (int16_t)(tick * DPF_FW_BLOCK + i);
        dpf_fw_tick(&core, captured, played);
        hear(true);
    }
    CHECK(next_sample == 100u * DPF_FW_BLOCK && core.counters.unsent == 0);

    for (uint32_t i = 0; i < 1000; i++) sound[i] = (int16_t)(i + 1);
    dpf_fw_item items[2] = {{.kind = DPF_FW_ITEM_SOUND, .offset = SOUND_AT, .nbytes = 2000, .request = 1, .slot = 3},
                            {.kind = DPF_FW_ITEM_SOUND, .offset = MEMORY - 100, .nbytes = 2000, .request = 1, .slot = 4}};
    send_items(items, 2); /* the second one lies outside */
    CHECK(core.instances[0].link.corrupt == 1);
    for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) captured[i] = 0;
    for (uint32_t tick = 0; tick < 3; tick++) {
        dpf_fw_tick(&core, captured, played);
        hear(false);
        for (uint32_t i = 0; i < DPF_FW_BLOCK; i++) CHECK(played[i] == (int16_t)(tick * DPF_FW_BLOCK + i + 1));
    }
    CHECK(bound == 0);
    dpf_fw_stop(&core);
    dpf_fw_tick(&core, captured, played);
    hear(false);
    CHECK(bound == 1 && played[0] != 0 && played[DPF_FW_BLOCK - 1] == 0 && core.counters.stopped == 520);
}

int main(void) {
    test_cepstra();
    test_echo();
    test_keyword();
    test_frame();
    test_core();
    printf("firmware, golden: ok\n");
    return 0;
}
