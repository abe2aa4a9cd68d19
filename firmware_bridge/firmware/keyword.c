/* SPDX-License-Identifier: Apache-2.0
 *
 * Dynamic time warping against templates and a filler (keyword.h).
 */
#include "keyword.h"

enum {
    QUIET = 100,       /* frames: one second */
    FAR = 0x3FFFFFFF /* no distance is as large */
};

static int32_t distance(const int8_t *a, const int8_t *b) {
    int32_t sum = 0;
    for (uint32_t i = 0u; i < (uint32_t)DPF_FW_DIMS; i++) {
        int32_t difference = (int32_t)a[i] - (int32_t)b[i];
        sum += (difference < 0) ? -difference : difference;
    }
    return sum;
}

static int32_t nearest(const dpf_fw_phrases *phrases, const int8_t *dims) {
    int32_t least = FAR;
    for (uint32_t i = 0u; i < phrases->filler_count; i++) {
        int32_t here = distance(dims, phrases->fillers[i]);
        if (here < least) least = here;
    }
    return (phrases->filler_count == 0u) ? 0 : least;
}

bool dpf_fw_keyword_init(dpf_fw_keyword *keyword, const dpf_fw_phrases *phrases) {
    bool fits = (phrases->count <= (uint32_t)DPF_FW_TEMPLATES) && (phrases->filler_count <= (uint32_t)DPF_FW_FILLERS);
    keyword->phrases = phrases;
    keyword->best = (dpf_fw_path){.cost = FAR, .frames = 1u, .stayed = 0u};
    keyword->best_template = 0u;
    keyword->quiet = 0u;
    for (uint32_t i = 0u; fits && (i < phrases->count); i++) {
        uint32_t length = phrases->templates[i].length;
        fits = (length >= 2u) && (length <= (uint32_t)DPF_FW_LENGTH);
        for (uint32_t n = 0u; fits && (n < length); n++) keyword->paths[i][n].frames = 0u;
    }
    return fits;
}

/* A way of at most 2.5 s: longer than any that the steps allow for a template. */
static bool usable(const dpf_fw_path *path) {
    return (path->frames != 0u) && (path->frames < 2u * (uint32_t)DPF_FW_LENGTH);
}

/* One frame more on the cheapest way to place `n` of a template. Places before `n` still hold the frame before. */
static void step(dpf_fw_path *paths, uint32_t n, int32_t cost) {
    const dpf_fw_path *from = 0;
    bool stayed = false;
    if ((n >= 1u) && usable(&paths[n - 1u])) from = &paths[n - 1u];
    if ((n >= 2u) && usable(&paths[n - 2u]) && ((from == 0) || (paths[n - 2u].cost < from->cost))) from = &paths[n - 2u];
    if ((n >= 1u) && usable(&paths[n]) && (paths[n].stayed == 0u) && ((from == 0) || (paths[n].cost < from->cost))) {
        from = &paths[n];
        stayed = true;
    }
    if (n == 0u) {
        paths[0] = (dpf_fw_path){.cost = cost, .frames = 1u, .stayed = 0u};
    } else if (from == 0) {
        paths[n].frames = 0u;
    } else {
        paths[n] = (dpf_fw_path){.cost = from->cost + cost, .frames = (uint16_t)(from->frames + 1u), .stayed = stayed ? 1u : 0u};
    }
}

/* Whether the mean cost of a frame is lower on one way than on another. */
static bool nearer(const dpf_fw_path *one, const dpf_fw_path *other) {
    return (int64_t)one->cost * (int64_t)other->frames < (int64_t)other->cost * (int64_t)one->frames;
}

/* Whether the template ends here, near enough. */
static bool ends(dpf_fw_keyword *keyword, uint32_t index) {
    const dpf_fw_template *one = &keyword->phrases->templates[index];
    const dpf_fw_path *end = &keyword->paths[index][one->length - 1u];
    bool near = false;
    if (end->frames != 0u) {
        near = end->cost < (int32_t)one->threshold * (int32_t)end->frames;
        if (nearer(end, &keyword->best)) {
            keyword->best = *end;
            keyword->best_template = index;
        }
    }
    return near;
}

uint32_t dpf_fw_keyword_push(dpf_fw_keyword *keyword, const dpf_fw_frame *frame) {
    const dpf_fw_phrases *phrases = keyword->phrases;
    int32_t filler = nearest(phrases, frame->dims);
    uint32_t heard = 0u;
    for (uint32_t i = 0u; i < phrases->count; i++) {
        const dpf_fw_template *one = &phrases->templates[i];
        for (uint32_t n = one->length; n > 0u; n--) {
            step(keyword->paths[i], n - 1u, distance(frame->dims, one->frames[n - 1u]) - filler);
        }
        if (ends(keyword, i) && (heard == 0u)) heard = one->phrase;
    }
    if (keyword->quiet != 0u) {
        keyword->quiet--;
        heard = 0u;
    } else if (heard != 0u) {
        keyword->quiet = QUIET;
    } else {
        /* nothing ends here */
    }
    return heard;
}
