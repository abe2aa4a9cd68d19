/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the client's test share: the server's side of the session that was opened last.
 */
#ifndef DPF_TEST_CLIENT_THREADS_H
#define DPF_TEST_CLIENT_THREADS_H

#include "fake_server.h"

extern fake_session session;

/* A client of the fake server, whose other side is `session`. */
dpf_client *open_one(void);

void test_many_threads(void);
void test_a_forked_child_does_not_hold_the_session(void);

#endif
