/* Trainings beside a server, on the same cores: each has a ring into which the server writes when
 * work comes, begins and ends (env/process/beside.h). The training decides which of its ops may run
 * then; the server never waits for it.
 *
 * A piece of work is a batch: it arrives when its first request has to wait, or begins at once.
 *
 * Several trainings: what a batch may lose is there once, so ops beside it are those of one
 * training, the one that has lost most of its progress (plan/serve/gate.h, ru_gate_turn). Each has
 * a bound of memory, and one is refused whose bound does not fit beside the server and the other
 * bounds.
 *
 * Thread: loop only. */
#ifndef RU_SERVE_BESIDE_BESIDE_H
#define RU_SERVE_BESIDE_BESIDE_H

#include "env/process/beside.h"
#include "serve/server_impl.h"

/* POST /v2/rubato/beside {"pid": N, "memory_bytes": M}: a ring for that process, which bounds
 * itself to the memory of the answer; M 0: half of what is left. */
void rui_beside_attach(ru_server *s, ru_http_request *r);
/* A request waits when all instances are busy; a batch begins; one has ended. */
void rui_beside_waits(rui_version *v);
void rui_beside_begins(ru_server *s);
void rui_beside_ended(ru_server *s);
void rui_beside_close(ru_server *s);
/* The page of `rubato explain ADDR gate`; nothing: no training is there. */
void rui_beside_explain(ru_server *s, const ru_tell *o);

#endif
