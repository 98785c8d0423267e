/* The Open Inference Protocol v2 as bytes: requests in, answers out. JSON with flat or nested
 * tensors, and the binary extension, where tensors stand behind the JSON:
 *
 *     | JSON, Inference-Header-Content-Length bytes | tensor | tensor | ...
 *
 * No HTTP and no model: serve/server.c knows these.
 *
 * Source: kserve-2024-v2, triton-2024-protocol.
 * Thread: any. */
#ifndef RU_SERVE_OIP_H
#define RU_SERVE_OIP_H

#include "base/str.h"
#include "world/graph/graph.h"
#include "world/graph/texts.h"

enum { RU_OIP_TENSORS_MAX = 64 };

typedef struct ru_oip_tensor {
    ru_str name;
    ru_type type;
    const void *data; /* row-major, little-endian; view of the body or in the arena */
    bool binary;      /* of an output: behind the JSON */
    bool texts;       /* BYTES: type is i64, data are numbers of texts (world/graph/texts.h) */
    const char *const *text; /* [elements] of an output of texts */
} ru_oip_tensor;

typedef struct ru_oip_request {
    ru_str id;
    ru_oip_tensor inputs[RU_OIP_TENSORS_MAX];  /* [n_inputs] */
    ru_oip_tensor outputs[RU_OIP_TENSORS_MAX]; /* [n_outputs] name and binary alone */
    uint32_t n_inputs, n_outputs;              /* n_outputs 0: all that the model has */
    bool binary;        /* outputs without a setting of their own, and all of n_outputs 0 */
    int64_t priority;   /* 1: the highest; 0: not said */
    int64_t timeout_us; /* 0: not said */
    ru_texts words;     /* of all inputs; in the request's arena */
} ru_oip_request;

/* Bytes of an output behind the JSON, and those of texts: each with its length, 4 bytes, before it.
 */
int64_t ru_oip_bytes(const ru_oip_tensor *t);
void ru_oip_pack(const ru_oip_tensor *t, uint8_t *into);
/* "FP32"; NULL: the protocol has no name for it. */
const char *ru_oip_datatype(ru_dtype t);

/* Read an infer request. json_bytes < 0: the whole body is JSON.
 * Errors: RU_E_DATA with a sentence for the client, RU_E_LIMIT (no memory). */
RU_MUST_USE ru_status ru_oip_read(const void *body, int64_t size_bytes, int64_t json_bytes,
                                  ru_arena *arena, ru_oip_request *out, ru_err *err);

/* false: its JSON says no priority, which is known without reading it; true: maybe. */
bool ru_oip_may_have_priority(const void *body, int64_t size_bytes, int64_t json_bytes);

/* The JSON of a request with these inputs. */
void ru_oip_ask(const ru_oip_tensor *inputs, uint32_t n, ru_text *into);
/* Read an answer without binary tensors: its outputs become inputs of *out. Errors: as
 * ru_oip_read. */
RU_MUST_USE ru_status ru_oip_read_answer(const void *body, int64_t size_bytes, ru_arena *arena,
                                         ru_oip_request *out, ru_err *err);
/* The JSON of an answer; tensors that are binary follow it in their order. */
void ru_oip_answer(const char *model, const char *version, ru_str id, const ru_oip_tensor *outputs,
                   uint32_t n, ru_text *into);

#endif
