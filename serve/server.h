/* The server of models: Open Inference Protocol v2 over HTTP on the loop of a process.
 *
 *   web/http --request--> oip.c (bytes to tensors) --> serve.c (which batch, when) --START-->
 *   crew.c (threads that compute, model.c) --done--> oip.c (tensors to bytes) --> web/http
 *
 * The loop's thread parses, decides and answers. It computes short batches only, and never opens a
 * model. A loader's thread opens models and closes those that are no longer wanted.
 *
 * Thread: loop only. */
#ifndef RU_SERVE_SERVER_H
#define RU_SERVE_SERVER_H

#include "env/loop/loop.h"
#include "serve/model.h"

typedef struct ru_server ru_server;

/* Instances that compute the batches of a model, in place of this process. */
typedef struct ru_server_functions {
    const char *const *argv; /* of a process here (function/host.h); the model's path follows */
    const char *url, *name;  /* of an endpoint, NULL: processes here; of the function */
    bool sign;               /* signature of version 4 */
    uint32_t instances_max;
    double memory_min_mb, memory_max_mb, memory_step_mb; /* that an instance may have */
    int64_t keep_ns;                                     /* an idle instance ends after it */
    uint32_t sizes; /* classes of sizes, where requests may be shorter than the model; 1: none */
    uint32_t buffers_max; /* that take them by size */
    double usd_per_gb_s, usd_per_call;
} ru_server_functions;

typedef struct ru_server_options {
    ru_loop *loop;
    const char *listen;        /* as ru_http_options */
    const char *token;         /* NULL: everybody */
    const char *cert, *key;    /* as ru_http_options */
    uint32_t requests_max;     /* of one model, waiting and computed together; 0: 1024 */
    int64_t outputs_max_bytes; /* of all requests under way; more are refused; 0: 512 MiB */
    int64_t slo_ns; /* the promise: a request of quantile slo_q is answered so soon; 0: none */
    double slo_q;
    /* 0: no limit. A model that opens for longer has failed; a request that waits for longer, or is
     * not answered so long after its head, is answered 504. */
    int64_t load_max_ns, wait_max_ns, answer_max_s;
    const char *access_log; /* file to append to, a JSON object for each answer; NULL: none */
    const ru_server_functions *functions; /* with slo_ns; NULL: none */
    ru_served_options served;             /* of every model; config.pbtxt may say otherwise */
    /* The model at a path; on the loader's thread. */
    ru_status (*open)(void *self, const char *path, ru_source *out, ru_err *err);
    void *open_self;
} ru_server_options;

/* Listens at once; models come by ru_server_load. Errors: those of ru_http_open and of threads. */
RU_MUST_USE ru_status ru_server_open(const ru_server_options *opt, ru_arena *arena, ru_server **out,
                                     ru_err *err);
/* Stop first, and run the loop until it says so; or what is under way is dropped. */
void ru_server_close(ru_server *s);
const char *ru_server_address(const ru_server *s); /* host:port */

/* Open a version of a model off the loop, by its path. `done` on the loop, once it answers or
 * failed (err NULL: it answers). Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_server_load(ru_server *s, const char *model, const char *version,
                                     const char *path, void (*done)(void *self, const ru_err *err),
                                     void *self, ru_err *err);
/* Serve the models of a folder, PATH/<model>/<version>/model.onnx; clients may load and unload
 * them. One that fails says so in the log and in the index. Errors: RU_E_MISSING, RU_E_IO. */
RU_MUST_USE ru_status ru_server_repository(ru_server *s, const char *path, ru_err *err);
/* Take no more requests, answer those that are there; `done` on the loop when that is so. */
void ru_server_stop(ru_server *s, void (*done)(void *self), void *self);

#endif
