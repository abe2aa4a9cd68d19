/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks every point between two writes to shared memory, so that a test can let a side die there. Nothing otherwise.
 */
#ifndef DPF_STEP_H
#define DPF_STEP_H

#ifdef DPF_STEP_HOOK
void dpf_step_hook(void);
#define DPF_STEP() dpf_step_hook()
#else
#define DPF_STEP() ((void)0)
#endif

#endif
