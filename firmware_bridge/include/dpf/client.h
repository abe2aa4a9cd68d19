/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/client.h - a head unit's side of a spoken conversation with `dpfedge serve` on the same machine. Link with -ldpfedge
 * (pkg-config dpfedge). Plain C11, usable from C++17; this header needs no other of dpf.
 *
 *     dpf_client_options options;
 *     dpf_client_options_init(&options, sizeof options);
 *     dpf_client *client;
 *     char why[256];
 *     if (dpf_client_open(&options, &client, why, sizeof why) != DPF_CLIENT_OK) return complain(why);
 *     dpf_client_push(client, samples, count, 100);                      // from the microphone, again and again
 *     while (dpf_client_next_event(client, &event, 0) == DPF_CLIENT_OK) {  // words, answers, errors
 *         show(&event);
 *         dpf_client_event_done(client, &event);
 *     }
 *     while (dpf_client_next_sound(client, &sound, 20) == DPF_CLIENT_OK) { // samples of the answer
 *         play(sound.samples, sound.count);
 *         dpf_client_sound_done(client, &sound);
 *     }
 *     dpf_client_close(client);
 *
 * Memory. Opening a session gets 1.3 MiB of shared memory from the server (a sealed memfd) with four rings: microphone and
 * stops to the server, events and sound to the client. Samples never pass a socket. `dpf_client_push` copies them once, into
 * the ring; `dpf_client_loan` lends the place itself, so that a capture driver writes there and nothing is copied here.
 * Events and sound are read where the server wrote them.
 *
 * Ownership. `text` and `samples` point into the shared memory and are yours until you hand them back with `..._done`, or close
 * the session; also when the server is dead by then. Hand back what you get: 128 events and 64 pieces of sound are all there
 * are. A server that finds no room for sound keeps it (up to 8 MiB), then makes no more; one that finds no room for an
 * event waits, and after 8192 events ends the session.
 * Text is UTF-8 with a NUL behind it. A client trusts its server: who can write into the memory can change what you read.
 *
 * Threads. Every function may be called from any thread at any time, except that dpf_client_close must be the last: end the
 * other threads first (dpf_client_hang_up wakes them). What waits, waits without a lock: a thread in dpf_client_next_sound holds
 * nobody up. Two threads in the same next function share what comes. No function installs a signal handler, changes
 * process-wide state or starts a thread; no SIGPIPE is raised. A forked child must not use its parent's session: all it may call is
 * dpf_client_close, which leaves the parent's session alone. Until it does, calls execve or ends, the server does not see that the
 * parent was killed.
 *
 * Order. What you push, commit, clear, say, respond and cancel is done in that order; only a stop overtakes. An answer that was
 * asked for before a stop and not begun is not begun: you get its ANSWER_STARTED and its ANSWER_DONE, cancelled.
 *
 * Waiting. `timeout_ms`: 0 does not wait, -1 waits for ever. A signal handler that runs does not end a wait.
 * For an event loop: dpf_client_event_fd and dpf_client_sound_fd become readable (poll, epoll, QSocketNotifier,
 * g_unix_fd_add) when something is there or the session has ended; call the next function with timeout 0 until it answers
 * DPF_CLIENT_TIMEOUT. Never read, write or close these descriptors.
 *
 * When the server dies, is told to end or ends the session: what it had sent can still be received, then every function
 * answers DPF_CLIENT_GONE, at once and for ever, also to threads that wait. Close the session and open another; with
 * `wait_ms` dpf_client_open waits for the server to come back. The new session knows nothing of the old one's conversation.
 * When the client dies, the server notices at once and frees the session.
 *
 * Stopping. `dpf_client_stop` is for the person who says stop, presses the button or begins to speak: it never waits and never
 * fails for want of room. When it returns, no sound made before is ever returned again; the server stops making the answer.
 * Unless DPF_CLIENT_NO_BARGE_IN is set the server does the same by itself when it hears speech, and says SPEECH_STARTED:
 * silence your own playback buffer then, and call dpf_client_stop to say how much of the answer was heard.
 * `dpf_client_cancel` ends the answer and lets you play what was made of it so far.
 *
 * The protocol below this header: dpfedge/serve/native/NATIVE.md.
 */
#ifndef DPF_CLIENT_H
#define DPF_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header and of the protocol. The server and the library must have the same major version; fields and events
 * that a minor version adds are at the end, and unknown events may be ignored. */
#define DPF_CLIENT_MAJOR 1
#define DPF_CLIENT_MINOR 0

/* What a function answers; 0 is success. */
typedef enum dpf_client_status {
    DPF_CLIENT_OK = 0,
    DPF_CLIENT_TIMEOUT = -1,   /* nothing came, or no room was made, within timeout_ms */
    DPF_CLIENT_BAD = -2,       /* an argument is impossible; nothing was done */
    DPF_CLIENT_NO_SERVER = -3, /* nobody listens on the socket */
    DPF_CLIENT_DENIED = -4,    /* the server is another user's, and you are not in its group */
    DPF_CLIENT_VERSION = -5,   /* the server speaks another major version */
    DPF_CLIENT_NOT_READY = -6, /* the server is starting or ending, or a stage of it is coming back: try again */
    DPF_CLIENT_BUSY = -7,      /* every session of the server is taken: try again later */
    DPF_CLIENT_REFUSED = -8,   /* the server cannot do what the options ask for */
    DPF_CLIENT_GONE = -9,      /* the server died or ended the session: close it, open another */
    DPF_CLIENT_CLOSED = -10,   /* dpf_client_hang_up was called */
    DPF_CLIENT_PROTOCOL = -11, /* what answered is no dpfedge server, or shared memory holds something impossible */
    DPF_CLIENT_SYSTEM = -12,   /* the operating system refused memory or descriptors */
    DPF_CLIENT_FAILED = -13    /* the server could not open the session; `why` tells more */
} dpf_client_status;

/* Bits of dpf_client_options.flags. */
enum {
    DPF_CLIENT_BY_HAND = 1,       /* push to talk: only dpf_client_commit ends an utterance, and dpf_client_respond answers */
    DPF_CLIENT_TEXT_ONLY = 2,     /* answers are text events; no sound is made */
    DPF_CLIENT_NO_BARGE_IN = 4,   /* speech does not end the answer being given */
    DPF_CLIENT_ASK_TO_ANSWER = 8, /* utterances are recognised, and answered after dpf_client_respond only */
    DPF_CLIENT_FLAGS = 15
};

/* Always begin with dpf_client_options_init. */
typedef struct dpf_client_options {
    uint32_t bytes;            /* sizeof, set by dpf_client_options_init */
    uint32_t flags;            /* 0 */
    const char *socket;        /* the server's native socket; NULL: $DPFEDGE_NATIVE, else where `dpfedge serve` puts it on port 8080 */
    const char *instructions;  /* how to answer, UTF-8, at most 65535 bytes; NULL: as the package says */
    uint32_t input_hz;         /* of what you push, 8000 to 48000, i16 mono; 16000 */
    uint32_t output_hz;        /* of the sound you get, 8000 to 48000; 0: the voice's own, which costs nothing */
    uint32_t silence_ms;       /* after speech, that ends an utterance, 64 to 5000; 0: as the package says */
    uint32_t max_answer_tokens; /* 1 to 4096; 0: as the package says */
    uint32_t wait_ms;          /* how long to wait for a server that is not there or not ready; 0: not at all */
    uint32_t reserved[7];      /* 0 */
} dpf_client_options;

/* What an event says. */
typedef enum dpf_client_event_kind {
    DPF_CLIENT_SPEECH_STARTED = 1, /* somebody speaks, since `at_ms`; `number` is the utterance */
    DPF_CLIENT_SPEECH_STOPPED = 2, /* the utterance ended at `at_ms` */
    DPF_CLIENT_WORDS = 3,          /* `text` goes on the words of the utterance; they change no more */
    DPF_CLIENT_TRANSCRIPT = 4,     /* `text` is the whole utterance; "" when there were no words */
    DPF_CLIENT_ANSWER_STARTED = 5, /* `number` is the answer */
    DPF_CLIENT_ANSWER_TEXT = 6,    /* `text` goes on the answer */
    DPF_CLIENT_ANSWER_DONE = 7,    /* the answer is complete (its sound may still be unread); `code` is a dpf_client_done */
    DPF_CLIENT_ERROR = 8           /* something failed and the session goes on; `code` as HTTP has them, `text` says what */
} dpf_client_event_kind;

/* How an answer ended. */
typedef enum dpf_client_done {
    DPF_CLIENT_COMPLETED = 0,
    DPF_CLIENT_TOO_LONG = 1, /* max_answer_tokens */
    DPF_CLIENT_CANCELLED = 2, /* by speech, dpf_client_stop or dpf_client_cancel; `text` says which */
    DPF_CLIENT_BROKEN = 3    /* `text` says why */
} dpf_client_done;

typedef struct dpf_client_event {
    uint32_t kind;       /* a dpf_client_event_kind; ignore what you do not know */
    uint32_t number;     /* of the utterance or answer, from 1; 0: of neither */
    uint32_t code;
    uint32_t at_ms;      /* on the clock of your samples: 0 is the first one pushed */
    uint64_t sent_ns;    /* CLOCK_MONOTONIC when the server sent it */
    const char *text;    /* NUL-terminated; "" when the event has none */
    uint32_t text_bytes; /* without the NUL */
    uint32_t more;       /* 1: the text was too long, the next event of this kind goes on with it */
    uint32_t slot, generation; /* the library's */
} dpf_client_event;

typedef struct dpf_client_sound {
    const int16_t *samples; /* mono */
    uint32_t count;         /* 0: only `last` matters */
    uint32_t hz;
    uint32_t number;  /* the answer */
    uint32_t last;    /* 1: the answer's sound is complete, or was stopped; after a stop it may come once more */
    uint64_t sent_ns; /* CLOCK_MONOTONIC when the server sent it */
    uint32_t slot, generation; /* the library's */
} dpf_client_sound;

/* A place of the microphone's ring that is lent to you. */
typedef struct dpf_client_room {
    int16_t *samples;
    uint32_t count; /* the most that fits */
    uint32_t slot, generation; /* the library's */
} dpf_client_room;

/* How the session's rings were used so far. */
typedef struct dpf_client_stats {
    uint64_t pieces_sent;     /* of microphone sound */
    uint64_t copies, copied_bytes; /* made by dpf_client_push; none by loan and send */
    uint64_t full;            /* times the microphone's ring was full */
    uint64_t events, sounds;  /* received */
    uint64_t sounds_copied, sound_bytes_copied; /* by the server, into the ring */
    uint64_t skipped;         /* pieces of sound thrown away after a stop */
} dpf_client_stats;

typedef struct dpf_client dpf_client;

#define DPF_CLIENT_HEARD_UNKNOWN 0xFFFFFFFFu

/* The library's version, major << 16 | minor. */
uint32_t dpf_client_version(void);

/* One line for a dpf_client_status; never NULL. */
const char *dpf_client_status_text(int status);

/* Sets everything to the values in the comments above; `bytes` is sizeof *options. */
void dpf_client_options_init(dpf_client_options *options, size_t bytes);

/* Opens a session: connects, agrees on the version, maps the memory. Every stage has the session when it returns.
 * On failure *client is NULL and `why` (may be NULL), if it has room, says what happened: the server's own words where it refused. */
int dpf_client_open(const dpf_client_options *options, dpf_client **client, char *why, size_t why_bytes);

/* Ends the session and gives its memory back; no thread may be inside another function, none may follow. NULL is fine. */
void dpf_client_close(dpf_client *client);

/* Ends the session for every thread: those that wait return DPF_CLIENT_CLOSED, as does every later call. Safe to repeat. */
void dpf_client_hang_up(dpf_client *client);

/* DPF_CLIENT_OK while the session lasts, else GONE or CLOSED. */
int dpf_client_state(const dpf_client *client);

/* The rate of the sound that dpf_client_next_sound returns. */
uint32_t dpf_client_output_hz(const dpf_client *client);

/* Sends samples, in pieces of at most 2048, waiting for room; 64 pieces fit. Calls of several threads mix piece by piece.
 * TIMEOUT: the first pieces were sent, the rest was not (a microphone drops it). */
int dpf_client_push(dpf_client *client, const int16_t *samples, size_t count, int timeout_ms);

/* Lends a place to write samples into; hand it back with `send` (count <= room->count; 0 sends nothing) from any thread.
 * Places are sent in the order of `send`. */
int dpf_client_loan(dpf_client *client, dpf_client_room *room, int timeout_ms);
int dpf_client_send(dpf_client *client, dpf_client_room *room, uint32_t count);

/* Ends the utterance now, behind everything pushed so far. Waits for room in the microphone's ring. */
int dpf_client_commit(dpf_client *client, int timeout_ms);

/* Forgets what was pushed since the last utterance. Like everything below, it waits for room in the same ring. */
int dpf_client_clear(dpf_client *client, int timeout_ms);

/* Adds a typed message, UTF-8, 1 to 4096 bytes; dpf_client_respond asks for its answer. BAD: empty or too long. */
int dpf_client_say(dpf_client *client, const char *text, size_t bytes, int timeout_ms);

/* Asks for an answer to what was said. An ERROR event tells when one is being given. */
int dpf_client_respond(dpf_client *client, int timeout_ms);

/* Ends the answer being given, if there is one; sound that was made is still returned. */
int dpf_client_cancel(dpf_client *client, int timeout_ms);

/* Silence, now: see "Stopping" above. `heard_ms`: how much of the answer's sound reached the ear; the conversation remembers the
 * words up to there. DPF_CLIENT_HEARD_UNKNOWN: the server reckons with the time since the first sample. */
int dpf_client_stop(dpf_client *client, uint32_t heard_ms);

/* The next event, or piece of sound, in the order the server sent them; hand each back with `..._done`. */
int dpf_client_next_event(dpf_client *client, dpf_client_event *event, int timeout_ms);
int dpf_client_event_done(dpf_client *client, dpf_client_event *event);
int dpf_client_next_sound(dpf_client *client, dpf_client_sound *sound, int timeout_ms);
int dpf_client_sound_done(dpf_client *client, dpf_client_sound *sound);

/* Descriptors for an event loop; see "Waiting" above. They are the library's. */
int dpf_client_event_fd(const dpf_client *client);
int dpf_client_sound_fd(const dpf_client *client);

/* The counters so far; `bytes` is sizeof *stats. */
int dpf_client_read_stats(dpf_client *client, dpf_client_stats *stats, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
