/* A function that trains: the program side of fleet/functions.h. A call names a store, an epoch and
 * a rank; the worker computes its share of each step, exchanges gradients through the store
 * (fleet/exchange/shards.h), and answers when no step follows. What it has opened stays for the
 * next call.
 *
 *   in    {"store": "http://HOST:PORT", "token", "keys": redis:// or s3:// or empty,
 *          "job": hex, "epoch", "rank", "workers", "first", "end", "steps", "left_s",
 *          "at": samples of the steps done, "batch": of each step of the call,
 *          "files": [paths], "before", "samples": those of data.follow that hold its steps,
 *          "facts": text of state.json}
 *   out   {"step": steps done, "why": "end" | "last" | "fenced"}
 *
 * Thread: loop only; a call blocks it. */
#ifndef RU_FLEET_FUNC_WORKER_H
#define RU_FLEET_FUNC_WORKER_H

#include "base/str.h"
#include "env/clock.h"

typedef struct ru_func_worker ru_func_worker;

/* `threads` compute; 0: as the job says. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_func_worker_open(uint32_t threads, ru_arena *arena, ru_func_worker **out,
                                          ru_err *err);
void ru_func_worker_close(ru_func_worker *w); /* NULL is fine */
/* As ru_function_instance_options.handle; self: ru_func_worker. A call ends at `until`, if that is
 * before what it says itself. Errors: RU_E_DATA for a call that
 * makes no sense, RU_E_PEER when the store does not answer, those of train/driver/summed.h. */
RU_MUST_USE ru_status ru_func_worker_answer(void *self, const uint8_t *body, int64_t body_bytes,
                                            ru_time until, ru_arena *arena, ru_text *out,
                                            ru_err *err);

#endif
