/* SPDX-License-Identifier: Apache-2.0
 *
 * The tasks of core.h.
 */
#include "core.h"

#include "port.h"

enum {
    MESSAGE = 4 * DPF_FW_BLOCK, /* samples sent at once: 40 ms */
    PIECES = 64,                /* of sound, that one tick looks at: what the ring holds */
    EVENTS = 16,                /* that one tick reads */
    OWN_TICKS = 60,             /* how long after the answer said a phrase it may still be heard in the room */
    MUTED_TICKS = 40,           /* after a phrase: its last sounds, and their echo */
    FADE = 40,                  /* samples from the last one played to silence: 2.5 ms, no click */
    FADE_STEP = 32768 / FADE
};

static dpf_fw_link *serving(dpf_fw_core *core) {
    return (core->chosen < core->instance_count) ? &core->instances[core->chosen].link : 0;
}

/* ---- the buttons ---- */

void dpf_fw_flush(dpf_fw_core *core) {
    core->committing = true;
}

void dpf_fw_clear(dpf_fw_core *core) {
    core->clearing = true;
}

/* ---- the loudspeaker ---- */

/* Sound of an epoch below it is not played. The shared word may be gone with its session, or be lowered by a server that
 * went mad; what was stopped here stays stopped. */
static uint32_t bound_of(const dpf_fw_core *core, const dpf_fw_link *link) {
    uint32_t shared = dpf_fw_link_bound(link);
    return (shared > core->floor) ? shared : core->floor;
}

static void drop(dpf_fw_core *core, dpf_fw_link *link) {
    if (core->playing) {
        core->counters.stopped += core->sound.count - core->at;
        dpf_fw_link_sound_done(link, &core->sound);
        core->playing = false;
    }
    core->inside = false;
}

void dpf_fw_stop(dpf_fw_core *core) {
    dpf_fw_link *link = serving(core);
    if (link != 0) {
        uint32_t floor = dpf_fw_link_stop(link, core->answer_samples / ((uint32_t)DPF_FW_HZ / 1000u));
        if (floor > core->floor) core->floor = floor;
        drop(core, link);
        core->counters.stops++;
        core->counters.stop_tick = core->counters.ticks;
    }
}

static void begin(dpf_fw_core *core) {
    core->playing = true;
    core->at = 0u;
    core->inside = core->inside || (core->sound.count != 0u); /* the end of an answer that was stopped is told again */
    if (core->sound.answer != core->answer) {
        core->answer = core->sound.answer;
        core->answer_samples = 0u;
    }
}

static void finish(dpf_fw_core *core, dpf_fw_link *link) {
    if (core->sound.last && core->inside) {
        core->counters.answers++;
        core->inside = false;
    }
    dpf_fw_link_sound_done(link, &core->sound);
    core->playing = false;
}

/* Makes sure that something is being played that may be; false when there is nothing. */
static bool next_sound(dpf_fw_core *core, dpf_fw_link *link) {
    bool more = true;
    for (uint32_t i = 0u; (i < (uint32_t)PIECES) && more; i++) {
        uint32_t bound = bound_of(core, link);
        if (core->playing && (core->sound.epoch < bound)) drop(core, link);
        if (core->playing && (core->at >= core->sound.count)) finish(core, link);
        if (core->playing) {
            more = false;
        } else if (!dpf_fw_link_sound(link, &core->sound)) {
            more = false;
        } else if (core->sound.epoch < bound) {
            core->counters.stopped += core->sound.count;
            dpf_fw_link_sound_done(link, &core->sound);
        } else {
            begin(core);
        }
    }
    return core->playing && (core->at < core->sound.count);
}

static void silence(dpf_fw_core *core, int16_t *playback, uint32_t from) {
    int32_t level = core->level;
    for (uint32_t i = from; i < (uint32_t)DPF_FW_BLOCK; i++) {
        int32_t left = (int32_t)FADE - (int32_t)(i - from);
        playback[i] = (int16_t)((left > 0) ? ((level * left * (int32_t)FADE_STEP) >> 15) : 0);
    }
    core->level = 0;
}

static void loudspeaker(dpf_fw_core *core, int16_t *playback) {
    dpf_fw_link *link = serving(core);
    uint32_t filled = 0u;
    while ((filled < (uint32_t)DPF_FW_BLOCK) && (link != 0) && next_sound(core, link)) {
        uint32_t left = core->sound.count - core->at;
        uint32_t room = (uint32_t)DPF_FW_BLOCK - filled;
        uint32_t count = (left < room) ? left : room;
        for (uint32_t i = 0u; i < count; i++) {
            playback[filled + i] = *(const volatile int16_t *)&core->sound.samples[core->at + i];
        }
        core->at += count;
        filled += count;
        core->answer_samples += count;
        core->counters.played += count;
        core->level = playback[filled - 1u];
    }
    if (core->inside && (filled < (uint32_t)DPF_FW_BLOCK)) core->counters.starved++;
    if (filled < (uint32_t)DPF_FW_BLOCK) silence(core, playback, filled);
}

/* ---- the ear ---- */

static uint32_t listen(dpf_fw_features *features, dpf_fw_keyword *keyword, const int16_t *block) {
    dpf_fw_frame frame;
    return dpf_fw_features_push(features, block, &frame) ? dpf_fw_keyword_push(keyword, &frame) : 0u;
}

static void ear(dpf_fw_core *core, const int16_t *captured) {
    uint32_t heard = listen(&core->ear, &core->keyword, captured);
    if (core->own_since < (uint32_t)OWN_TICKS) core->own_since++;
    if ((heard != 0u) && (core->own_since < (uint32_t)OWN_TICKS)) {
        core->counters.own++;
    } else if (heard != 0u) {
        core->counters.heard = heard;
        dpf_fw_stop(core);
        dpf_fw_clear(core); /* the phrase was for the lane: nobody is to answer it, nor the rest of it */
        core->muted = MUTED_TICKS;
    } else {
        /* nothing was said */
    }
}

/* What the loudspeaker is about to say. */
static void own_ear(dpf_fw_core *core, const int16_t *playback) {
    if (listen(&core->own_ear, &core->own_keyword, playback) != 0u) core->own_since = 0u;
}

/* ---- the microphone ---- */

static void send_held(dpf_fw_core *core, dpf_fw_link *link) {
    if (core->filled != 0u) {
        dpf_fw_link_samples(link, core->filled, core->captured_ns);
        core->counters.sent += core->filled;
        core->filled = 0u;
    }
}

static void obey(dpf_fw_core *core, dpf_fw_link *link) {
    if (core->clearing) {
        core->filled = 0u;
        core->committing = false;
        core->clearing = !dpf_fw_link_command(link, (uint8_t)DPF_FW_CLEAR);
    } else if (core->committing) {
        send_held(core, link);
        core->committing = !dpf_fw_link_command(link, (uint8_t)DPF_FW_COMMIT);
    } else {
        /* nobody asked */
    }
}

static void microphone(dpf_fw_core *core, const int16_t *captured) {
    dpf_fw_link *link = serving(core);
    uint32_t room = 0u;
    int16_t *place = (link == 0) ? 0 : dpf_fw_link_place(link, &room);
    if (place != core->place) core->filled = 0u; /* another slot: what was held was taken away */
    core->place = place;
    if ((place == 0) || (core->filled + (uint32_t)DPF_FW_BLOCK > room)) {
        core->counters.unsent += DPF_FW_BLOCK;
    } else {
        if (core->filled == 0u) core->captured_ns = dpf_fw_port_now_ns();
        for (uint32_t i = 0u; i < (uint32_t)DPF_FW_BLOCK; i++) place[core->filled + i] = (core->muted != 0u) ? (int16_t)0 : captured[i];
        core->filled += DPF_FW_BLOCK;
        if (core->filled >= (uint32_t)MESSAGE) send_held(core, link);
    }
    if (core->muted != 0u) core->muted--;
    if (link != 0) obey(core, link);
}

/* ---- the rest ---- */

static void events(dpf_fw_core *core) {
    for (uint32_t i = 0u; i < core->instance_count; i++) {
        dpf_fw_event event;
        uint32_t count = 0u;
        while ((count < (uint32_t)EVENTS) && dpf_fw_link_event(&core->instances[i].link, &event)) count++;
        core->counters.events += count;
    }
}

static bool named(const dpf_fw_instance *instance, const dpf_route_entry *entry) {
    bool same = (uint32_t)entry->name_bytes == instance->name_bytes;
    for (uint32_t i = 0u; same && (i < instance->name_bytes) && (i < (uint32_t)DPF_ROUTE_NAME_MOST); i++) {
        same = entry->name[i] == instance->name[i];
    }
    return same;
}

/* The instance of a table slot, or UINT32_MAX: nobody, or nobody this firmware has a session with. One look: a
 * writer who publishes meanwhile is met again at the next look, and can keep nobody here. False: nothing can be said. */
static bool look_up(const dpf_fw_core *core, uint32_t *chosen) {
    const dpf_route_view *view = &core->view;
    dpf_route_entry entry;
    dpf_route_word before = dpf_route_generation(view);
    dpf_route_word now;
    uint32_t owner = dpf_route_read(view->table[before & 1u] + dpf_route_slot(core->hash, view->bits));
    bool somebody = (owner < view->capacity) && (before != DPF_ROUTE_ENDED);
    if (somebody) dpf_route_take(&entry, view->entries[before & 1u] + owner);
    bool whole = dpf_route_same(view, before, &now);
    *chosen = UINT32_MAX;
    for (uint32_t i = 0u; somebody && (i < core->instance_count); i++) {
        if (named(&core->instances[i], &entry)) *chosen = i;
    }
    return whole && (before != DPF_ROUTE_ENDED);
}

static void move(dpf_fw_core *core, uint32_t chosen) {
    dpf_fw_link *link = serving(core);
    if (link != 0) {
        send_held(core, link); /* what was said was said to this one */
        (void)dpf_fw_link_stop(link, core->answer_samples / ((uint32_t)DPF_FW_HZ / 1000u));
        drop(core, link);
    }
    core->filled = 0u;
    core->place = 0;
    core->floor = 0u;
    core->chosen = chosen;
    core->counters.moves++;
}

static void route(dpf_fw_core *core) {
    uint32_t chosen;
    if (!core->routed) {
        core->chosen = 0u;
    } else if (look_up(core, &chosen)) {
        if (chosen != core->chosen) move(core, chosen);
    } else {
        /* the table is being changed, or another took its place: what was chosen stays */
    }
}

bool dpf_fw_core_init(dpf_fw_core *core, const dpf_fw_config *config) {
    bool fits = dpf_fw_keyword_init(&core->keyword, config->phrases) && dpf_fw_keyword_init(&core->own_keyword, config->phrases);
    dpf_fw_features_init(&core->ear);
    dpf_fw_features_init(&core->own_ear);
    dpf_fw_echo_init(&core->echo);
    core->cancels = config->cancel_echo;
    core->own_since = OWN_TICKS;
    core->chosen = UINT32_MAX;
    core->routed = config->route != 0;
    if (fits && core->routed) {
        unsigned char key[DPF_ROUTE_KEY_MOST];
        uint32_t nbytes = dpf_route_key(key, config->model, config->model_bytes, config->user, config->user_bytes, config->session_ms);
        fits = (nbytes != 0u) && (dpf_route_map_open(config->route, config->route_bytes, &core->view) == DPF_ROUTE_OK);
        if (fits) core->hash = dpf_xxh64(key, nbytes, core->view.key_seed);
    }
    return fits;
}

/* What is left of the samples without the answer; `last` is what was played when they were captured. */
static const int16_t *without_echo(dpf_fw_core *core, const int16_t *captured) {
    if (core->cancels) dpf_fw_echo_cancel(&core->echo, captured, core->last, core->cleaned, DPF_FW_BLOCK);
    return core->cancels ? core->cleaned : captured;
}

void dpf_fw_tick(dpf_fw_core *core, const int16_t *captured, int16_t *playback) {
    const int16_t *heard = without_echo(core, captured);
    if ((core->counters.ticks % 10u) == 0u) route(core);
    ear(core, heard);
    loudspeaker(core, playback);
    own_ear(core, playback);
    microphone(core, heard);
    for (uint32_t i = 0u; i < (uint32_t)DPF_FW_BLOCK; i++) {
        core->last[i] = playback[i];
        __asm__ volatile("" ::: "memory"); /* or a compiler makes it a call of memcpy */
    }
    if ((core->counters.ticks % 2u) == 0u) events(core);
    for (uint32_t i = 0u; i < core->instance_count; i++) {
        if (dpf_fw_link_due(&core->instances[i].link)) dpf_fw_port_doorbell(i);
    }
    core->counters.ticks++;
}
