/* Questions to a running job, from a process that has its token: the job for a newcomer, the world
 * file, a window of traces.
 *
 * Thread: any; each waits for its answer. */
#ifndef RU_HOST_ASK_H
#define RU_HOST_ASK_H

#include "base/arena.h"
#include "base/status.h"

/* Ask a worker of a running job for the job (resolved YAML) and its run directory, as a newcomer
 * on another host does. Errors: RU_E_PEER when nobody answers or the token is another one. */
RU_MUST_USE ru_status ru_ask_job(const char *address, const uint8_t *token, uint32_t token_bytes,
                                 ru_arena *arena, const char **yaml, const char **out, ru_err *err);

/* The world file of a running job, from any worker of it: who does not lead says where the leader
 * is. Owner: *text [size_bytes] in `arena`. Errors: RU_E_PEER when nobody answers or the token is
 * not the job's, RU_E_AGAIN, RU_E_MEM. */
RU_MUST_USE ru_status ru_ask_world(const char *address, const uint8_t *token, uint32_t token_bytes,
                                   ru_arena *arena, const char **text, int64_t *size_bytes,
                                   ru_err *err);

typedef struct ru_ask_answer {
    const char *dir;         /* on the leader's host */
    uint32_t saved, members; /* traces in it */
} ru_ask_answer;

/* Let all workers of a running job keep the next so many steps of their traces; waits until they
 * did. Owner: into->dir in `arena`. Errors: RU_E_PEER when nobody answers, the token is not the
 * job's or the leader is lost meanwhile; RU_E_AGAIN when another window is under way. */
RU_MUST_USE ru_status ru_ask_window(const char *address, const uint8_t *token, uint32_t token_bytes,
                                    uint32_t steps, ru_arena *arena, ru_ask_answer *into,
                                    ru_err *err);

#endif
