/* SPDX-License-Identifier: Apache-2.0
 *
 * What ear.py must know of the structs.
 */
#include <stddef.h>

#include "../echo.h"
#include "../keyword.h"

uint32_t dpf_fw_size_features(void);
uint32_t dpf_fw_size_keyword(void);
uint32_t dpf_fw_size_best(void);
uint32_t dpf_fw_size_echo(void);

uint32_t dpf_fw_size_features(void) {
    return (uint32_t)sizeof(dpf_fw_features);
}

uint32_t dpf_fw_size_keyword(void) {
    return (uint32_t)sizeof(dpf_fw_keyword);
}

uint32_t dpf_fw_size_best(void) {
    return (uint32_t)offsetof(dpf_fw_keyword, best);
}

uint32_t dpf_fw_size_echo(void) {
    return (uint32_t)sizeof(dpf_fw_echo);
}
