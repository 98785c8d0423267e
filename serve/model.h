/* One version of a model, ready to compute: executables for batches of 1, 2, 4, ... rows on each
 * instance, behind one signature.
 *
 *   source --graph(rows)--> graph --exec--> executable --load--> values of its states
 *
 * Where weights are constants, a row that met NaN is computed again on an executable of one row
 * that keeps NaN: ru_served_grow opens it first, and ru_served_run waits for it (RU_E_LIMIT where
 * it does not open). When all is open, what kernels have packed is the only copy of such weights.
 *
 * The first opens for one row on every instance, so that the model answers early; the larger ones
 * follow on the loader's thread while it serves (ru_served_grow). All share the states of the first
 * and what the one before packed, where it is the same. Rows do not meet inside a batch: a model
 * whose dimensions do not follow the number of rows is computed one request at a time, one whose
 * answer for a row of floats depends on the others one row at a time.
 *
 * A late model opens for one row before its first batch runs, and reads the values of its states
 * then.
 *
 * Where a source has its model for sequences of other lengths, requests may be shorter than the
 * model (facts.size_max), if zeros behind them change nothing in their answers. Who computes them
 * pads them, and has one of these for each length that it pads to.
 *
 * Thread: open, grow and close: one, which may be another than those of ru_served_run; each
 * instance: one at a time. */
#ifndef RU_SERVE_MODEL_H
#define RU_SERVE_MODEL_H

#include "exec/exe.h"
#include "serve/oip.h"

typedef struct ru_served ru_served;

typedef struct ru_source_ops {
    const char *name; /* what the metadata call the platform: "rubato_run", "rubato_onnx" */
    /* The inference graph for `rows` rows: concrete, in `arena`, which lives as long as the model.
     * length: of sequences; 0: the model's own; RU_E_UNSUPPORTED: it has no other. A source that
     * cannot choose ignores `rows`. */
    ru_status (*graph)(void *self, int64_t rows, int64_t length, ru_arena *arena, ru_graph *out,
                       ru_err *err);
    /* A language model in steps of `rows` rows (serve/steps.h): inputs ids, slot, at i64 [rows] and
     * want i64 [wanted], output logits [wanted, vocab], states of role CACHE [slots, heads,
     * context, size], of bf16 where that is asked. NULL, or RU_E_UNSUPPORTED: the model is none. */
    ru_status (*steps)(void *self, int64_t rows, int64_t wanted, int64_t slots, bool bf16,
                       ru_arena *arena, ru_graph *out, ru_err *err);
    /* Values of the states of an executable of such a graph; NULL: the graph has them. */
    ru_status (*load)(void *self, const ru_graph *g, ru_exe *exe, ru_err *err);
    /* Prepare rows of the first input in place, as before training; NULL: nothing to do. */
    void (*before)(void *self, void *rows, int64_t n);
    /* No graph is asked for any more; NULL: nothing to do. */
    void (*rest)(void *self);
    void (*close)(void *self);
} ru_source_ops;

typedef struct ru_source {
    const ru_source_ops *ops;
    void *self;
    const char *const *outputs;       /* [outputs of the graph] names; NULL: those of the graph */
    const bool *texts_in, *texts_out; /* [inputs, outputs] of texts, as i64; NULL: none */
    const ru_texts *words;            /* the model's texts; NULL: none */
    const struct ru_tokenizer *tokenizer; /* of a language model, the source's; NULL: none */
} ru_source;

typedef struct ru_served_options {
    ru_exe_options exe;
    uint32_t instances; /* batches at one time */
    int64_t rows_max;   /* of a batch */
    uint32_t streams;   /* texts that a language model writes at one time; 0: it writes none */
    bool late;          /* nothing opens before ru_served_first */
    bool sizes;         /* requests may be shorter than the model, where it takes that */
    int64_t length;     /* of sequences; 0: the model's own */
    ru_served *like; /* of another length, closed after this one: its source and the values of its
                        states are used; NULL: none */
} ru_served_options;

enum { RU_SERVED_SIZES_MAX = 16 }; /* of batches: 1, 2, ..., 2^15 rows */

typedef struct ru_served_value {
    const char *name;
    ru_type type;      /* of one row where the model is batched, else of all */
    int64_t row_bytes; /* of that */
    bool texts;        /* i64 are numbers of texts */
    bool sized;        /* the first dimension of a row is the request's size */
} ru_served_value;

typedef struct ru_served_facts {
    const char *platform;
    bool batched; /* dims[0] of a request's tensors is its number of rows */
    int64_t rows_max;
    int64_t size_max;                        /* of a request; 0: all have the same */
    const ru_served_value *inputs, *outputs; /* [n_inputs], [n_outputs] */
    uint32_t n_inputs, n_outputs;
    const ru_texts *words; /* the model's texts; NULL: none */
    bool prepares; /* rows are prepared before they are computed: nobody measures how long */
} ru_served_facts;

/* A request's part of a batch. */
typedef struct ru_served_part {
    int64_t rows;
    int64_t size;                       /* 0: the model's only one */
    const void *in[RU_OIP_TENSORS_MAX]; /* [n_inputs] rows behind each other */
    void *out[RU_OIP_TENSORS_MAX];      /* [n_outputs] */
    ru_status st;                       /* of this part; err of the run says more */
} ru_served_part;

/* Takes the source, also when it fails, but for one `like` another. Errors: those of the source and
 * of ru_exe_open; RU_E_UNSUPPORTED for types the protocol has no name for. */
RU_MUST_USE ru_status ru_served_open(const ru_source *source, const ru_served_options *opt,
                                     ru_served **out, ru_err *err);
/* Open a late model for one row, if it is not yet; any thread, one at a time. A failure stays. */
RU_MUST_USE ru_status ru_served_first(ru_served *m, ru_err *err);
/* Open the executables for more rows, once the first is open; ends early when `stop` is set. */
RU_MUST_USE ru_status ru_served_grow(ru_served *m, ru_err *err);
void ru_served_stop(ru_served *m); /* any thread: grow ends soon */
void ru_served_close(ru_served *m);

const ru_served_facts *ru_served_facts_get(const ru_served *m);
/* Bytes of a row in a request of such a size, and the type of all its rows. */
int64_t ru_served_row_bytes(const ru_served_facts *f, const ru_served_value *v, int64_t size);
ru_type ru_served_type(const ru_served_facts *f, const ru_served_value *v, int64_t rows,
                       int64_t size);
/* Do the inputs of a request fit? Rows and size of the part; slot[k]: which input of the request is
 * the model's k-th. Errors: RU_E_DATA with a sentence for the client. */
RU_MUST_USE ru_status ru_served_fit(const ru_served *m, const ru_oip_request *r,
                                    ru_served_part *part, uint32_t *slot, ru_err *err);
/* Compute all parts, whole in size, as one batch (or several, beyond rows_max). A batch that fails
 * is computed again part by part, so that a bad row fails its own request. err: of the last that
 * failed. */
void ru_served_run(ru_served *m, uint32_t instance, ru_served_part *const *parts, uint32_t n,
                   ru_err *err);
/* No batch has come to the instance for RU_SERVED_REST_NS: its activations, inputs and outputs go
 * back to the system until the next one. */
#define RU_SERVED_REST_NS INT64_C(1000000000)
void ru_served_rest(ru_served *m, uint32_t instance);
/* Measured time of a batch of so many rows when it was opened; 0: not opened yet. */
int64_t ru_served_service_ns(ru_served *m, int64_t rows);

#endif
