/* SPDX-License-Identifier: Apache-2.0
 *
 * cepstra.h - what the ear of the stop lane hears: 16 kHz samples in, 24 small numbers for each 10 ms out.
 *
 * Mel-frequency cepstra c1 to c12 and their slopes, in integers only: no floating point, no division by a variable, no
 * allocation, no libc. After Davis and Mermelstein, "Comparison of parametric representations for monosyllabic word
 * recognition in continuously spoken sentences", IEEE ASSP-28 (1980); slopes after Furui, IEEE ASSP-34 (1986). The mean that the
 * microphone and the room add is taken away with a slow average over speech (cepstral mean normalisation, Atal 1974).
 * Loudness takes no part: c0 is left out.
 */
#ifndef DPF_FW_CEPSTRA_H
#define DPF_FW_CEPSTRA_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DPF_FW_HZ = 16000,
    DPF_FW_HOP = 160,     /* samples from one frame to the next: 10 ms */
    DPF_FW_WINDOW = 400,  /* samples of a frame: 25 ms */
    DPF_FW_FFT = 512,
    DPF_FW_BANDS = 24,    /* mel filters, 100 to 7600 Hz */
    DPF_FW_CEPSTRA = 12,
    DPF_FW_DIMS = 24,     /* cepstra and slopes */
    DPF_FW_SLOPE = 2      /* frames on each side that a slope looks at: a frame is known 20 ms after it ended */
};

typedef struct dpf_fw_features {
    int16_t samples[DPF_FW_WINDOW];
    uint32_t filled;
    uint32_t frames;                                        /* seen so far */
    int32_t mean[DPF_FW_CEPSTRA];                           /* times 256 */
    int32_t noise;                                          /* loudness of silence, log2 of power times 256 */
    int32_t loudness[2 * DPF_FW_SLOPE + 1];
    int32_t cepstra[2 * DPF_FW_SLOPE + 1][DPF_FW_CEPSTRA]; /* the newest frames, by number modulo their count */
    int32_t re[DPF_FW_FFT];
    int32_t im[DPF_FW_FFT];
} dpf_fw_features;

/* One frame: `dims` of -127 to 127, and log2 of its power times 256, 85 for each dB. */
typedef struct dpf_fw_frame {
    int8_t dims[DPF_FW_DIMS];
    int16_t loudness;
} dpf_fw_frame;

void dpf_fw_features_init(dpf_fw_features *state);

/* Takes the next DPF_FW_HOP samples; true when a frame came out of them. */
bool dpf_fw_features_push(dpf_fw_features *state, const int16_t *hop, dpf_fw_frame *frame);

/* log2(power) times 256; 0 for 0. */
int32_t dpf_fw_log2(uint64_t power);

#ifdef __cplusplus
}
#endif

#endif
