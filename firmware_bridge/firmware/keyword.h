/* SPDX-License-Identifier: Apache-2.0
 *
 * keyword.h - is somebody saying one of these phrases right now? Frames of cepstra.h in, the number of a phrase out.
 *
 * Each phrase has some examples (templates). A template is laid over what was heard with dynamic time warping, beginning
 * anywhere: Sakoe and Chiba, "Dynamic programming algorithm optimization for spoken word recognition", IEEE ASSP-26 (1978), with the
 * local steps of Itakura, IEEE ASSP-23 (1975): a frame heard moves the template on by 0, 1 or 2, never twice by 0. So one pass over each
 * template for each frame is all there is, and the work of a frame never changes. From every distance that of the nearest of
 * some typical sounds is taken (a filler, after Rose and Paul, ICASSP 1990): what sounds like nothing known costs both alike.
 * Integers only; no allocation, no libc.
 */
#ifndef DPF_FW_KEYWORD_H
#define DPF_FW_KEYWORD_H

#include "cepstra.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DPF_FW_TEMPLATES = 16, /* at most */
    DPF_FW_LENGTH = 128,   /* frames of a template at most: 1.28 s */
    DPF_FW_FILLERS = 64    /* at most */
};

typedef struct dpf_fw_template {
    const int8_t (*frames)[DPF_FW_DIMS];
    uint16_t length;
    uint8_t phrase;    /* what is answered when it is heard, from 1 */
    int16_t threshold; /* mean cost of a frame below which it counts as heard; negative: nearer than the filler */
} dpf_fw_template;

typedef struct dpf_fw_phrases {
    const dpf_fw_template *templates;
    uint32_t count;
    const int8_t (*fillers)[DPF_FW_DIMS];
    uint32_t filler_count;
} dpf_fw_phrases;

/* How far a template was followed; one for each of its frames. */
typedef struct dpf_fw_path {
    int32_t cost;
    uint16_t frames; /* heard, on the way here; 0: there is no way */
    uint16_t stayed; /* whether the last step moved nothing */
} dpf_fw_path;

typedef struct dpf_fw_keyword {
    const dpf_fw_phrases *phrases;
    dpf_fw_path paths[DPF_FW_TEMPLATES][DPF_FW_LENGTH];
    dpf_fw_path best;       /* the lowest mean cost of a frame at the end of a template so far: for who sets thresholds */
    uint32_t best_template; /* whose it is */
    uint32_t quiet;         /* frames to come in which nothing is reported: a phrase is heard once */
} dpf_fw_keyword;

/* False when a phrase is larger than this was built for. Keeps `phrases`. */
bool dpf_fw_keyword_init(dpf_fw_keyword *keyword, const dpf_fw_phrases *phrases);

/* Takes the next frame; the phrase that ends with it, 0 for none. */
uint32_t dpf_fw_keyword_push(dpf_fw_keyword *keyword, const dpf_fw_frame *frame);

#ifdef __cplusplus
}
#endif

#endif
