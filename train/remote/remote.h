/* Trained weights that one process serves and others use: what they are, before any of their bytes.
 *
 *   guest  HELLO(version) ----------------->  served
 *          <------------- HEAD(version, bytes of the description, who), or NO(sentence)
 *          ASK "model" -------------------->  the description: state.json, an imported model's
 * file,
 *          <------------------------- chunks  and for each tensor its name, type and hash
 *          ASK tensors, each with a rank -->  (comm/pull/ask.h)
 *          <------------------------- chunks  of granted bytes by rank
 *
 * Thread: any; one at a time. */
#ifndef RU_TRAIN_REMOTE_REMOTE_H
#define RU_TRAIN_REMOTE_REMOTE_H

#include "base/hash.h"
#include "env/link/link.h"
#include "run/rundir.h"

enum {
    RU_REMOTE_VERSION = 3,
    RU_REMOTE_TENSORS_MAX = 1 << 18,
    RU_REMOTE_MODEL_MAX = 192 << 20, /* bytes of an imported model */
};

typedef struct ru_remote_tensor {
    const char *name;
    ru_type type;
    const void *data; /* row-major; NULL: not here */
    uint64_t hash;    /* of its bytes */
} ru_remote_tensor;

typedef struct ru_remote {
    const char *state; /* [state_bytes] text of state.json */
    int64_t state_bytes;
    const void *onnx; /* [onnx_bytes] file of an imported model; NULL: a model of the zoo */
    int64_t onnx_bytes;
    const ru_remote_tensor *at; /* [n] */
    uint32_t n;
    ru_hash128 hash; /* of names, types and bytes of all tensors */
    /* of ru_remote_open */
    ru_map_file map, onnx_map;
} ru_remote;

/* The weights of a checkpoint, as views of its file. Errors: RU_E_DATA, RU_E_UNSUPPORTED for a
 * model that was imported and is large or keeps weights in other files. */
RU_MUST_USE ru_status ru_remote_open(const ru_rundir *r, ru_arena *arena, ru_remote *out,
                                     ru_err *err);
void ru_remote_close(ru_remote *w); /* zeroed: fine */

/* The file of the imported model of that run; ru_remote_close gives it back. */
RU_MUST_USE ru_status ru_remote_onnx(const ru_rundir *r, ru_remote *w, ru_err *err);

/* The description as bytes, in `arena`. */
RU_MUST_USE ru_status ru_remote_pack(const ru_remote *w, ru_arena *arena, ru_span *out,
                                     ru_err *err);
/* ... and back, without data; `who` sent it. Errors: RU_E_DATA: damaged, a name twice, a type that
 * is none. */
RU_MUST_USE ru_status ru_remote_parse(const char *who, const void *data, int64_t size_bytes,
                                      ru_arena *arena, ru_remote *out, ru_err *err);

#endif
