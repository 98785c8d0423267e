/* A model whose batches are computed by functions, at the least cost that keeps the promise.
 *
 *   opened --probe each memory and size--> ready, every request alone
 *   requests come --fit, plan/serve/batch.h on the loader's thread, check--> the machine's table
 *   arrivals drift (CUSUM), or RUI_FAR_AGAIN_NS are over --> again
 *
 * Where requests differ in size, plan/serve/route.h chooses: buffers for sizes, each with its own
 * memory, batch and wait. Requests of a batch are padded to the class of its largest.
 *
 * A new choice is installed when it saves RUI_FAR_GAIN of the cost, or the one in force no longer
 * keeps the promise; one that needs more than RUI_FAR_BUSY of the instances, on average, is
 * refused, because the law assumes that every batch finds one free.
 *
 * Thread: loop only, but rui_far_choose. */
#ifndef RU_SERVE_FAR_FAR_H
#define RU_SERVE_FAR_FAR_H

#include "serve/server_impl.h"

#define RUI_FAR_GAIN     0.03
#define RUI_FAR_BUSY     0.6
#define RUI_FAR_AGAIN_NS INT64_C(600000000000)

/* Begin to probe; rui_version_known follows. Errors: those of ru_function_host_open,
 * RU_E_UNSUPPORTED (texts). */
RU_MUST_USE ru_status rui_far_open(rui_version *v, ru_err *err);
void rui_far_close(rui_far *f); /* NULL is fine; batches under way are dropped */
void rui_far_give(rui_far *f, rui_job *job);
rui_job *rui_far_take(rui_far *f); /* NULL: none is done */
/* A request comes: its class of sizes (size 0: there is one). */
uint32_t rui_far_came(rui_far *f, ru_time now, int64_t size);
/* One was answered after so long. */
void rui_far_answered(rui_far *f, int64_t size, int64_t all_ns);
/* On the loader's thread: look for a choice. */
RU_MUST_USE ru_status rui_far_choose(rui_far *f, ru_err *err);
void rui_far_chosen(rui_far *f, ru_status st, const ru_err *err, ru_time now);
/* Are requests routed by size? */
bool rui_far_sized(const rui_far *f);
/* The page of `rubato explain ADDR batch|route`. */
void rui_far_explain(const rui_far *f, const ru_tell *o);

#endif
