/* Facts: what was measured, as arrays of records with a count, mean, least, spread and age.
 *
 *   ops          one record for each op instance: a place in the executable's list, not an op type
 *   transfers    bytes from one host to another
 *   collectives  sums and broadcasts of a group
 *   disks        reads and writes
 *   steps        training steps: how long, and what the time went into
 *   processors   processor time of each worker, and its bound
 *   requests     inference and function calls
 *   prices       what a market asked, by time
 *
 * Folding makes them from traces (trace/read/fold.h), world files carry them (store/world_file.h),
 * predictors and policies read them. Records refer to each other by index or name, never by
 * pointer. Times are nanoseconds; an instant is nanoseconds since the start of the run, unless the
 * field says otherwise.
 *
 * Thread: any, plain data. */
#ifndef RU_WORLD_FACTS_H
#define RU_WORLD_FACTS_H

#include "base/conf.h"

/* Durations of one thing that happened `count` times. Only `mean_ns` is always known; another field
 * that is 0 was not measured. */
typedef struct ru_fact {
    int64_t count; /* 0: not measured */
    double mean_ns, stddev_ns;
    int64_t min_ns, median_ns, p90_ns, max_ns; /* exact, not estimated */
    int64_t age_ns;                            /* of the newest, at the time of folding */
    double predicted_ns;                       /* mean prediction that they carried; 0: none */
} ru_fact;

/* An instance of an op: one step of an executable's list. */
typedef struct ru_op_fact {
    uint32_t rank;           /* worker that ran it */
    uint32_t step;           /* its place in the list, from 0 */
    const char *node;        /* graph nodes it computes: "dense1/MatMul", several with '+' */
    const char *op;          /* "MatMul" */
    const char *kernel;      /* what runs it: "dnnl matmul brg:avx2" */
    const char *shapes;      /* "f32[128,784] f32[784,512] > f32[128,512]" */
    const char *device_type; /* as in the cluster: "cpu" */
    int64_t flops, bytes;    /* of one run: arithmetic, and bytes read plus written */
    ru_conf_i64s after;      /* [n] steps of the same list whose results it reads */
    ru_fact took;
} ru_op_fact;

typedef struct ru_transfer_fact {
    const char *name;      /* what was carried: a parameter, a chunk class */
    const char *from, *to; /* hosts */
    int64_t size_bytes;
    /* Steps of ops (of any rank: the lists are alike); -1: none. Of a gradient `used_by` is the
     * first that reads the parameter which it updates, in the next run. */
    int64_t made_by, needed_by, used_by;
    /* Of a parameter that is pulled (made_by -1): its rank, and instants of the newest time since
     * the first was asked for; needed_ns 0: no step waited for it or read it. */
    int64_t rank, arrived_ns, needed_ns;
    ru_fact took; /* on the link: without the time behind others */
} ru_transfer_fact;

typedef struct ru_coll_fact {
    const char *op, *algo; /* names of world/coll.h: "all-reduce", "ring" */
    uint32_t n_ranks;
    int64_t size_bytes;
    int64_t chunk_bytes; /* 0: in one piece */
    uint32_t depth;      /* chunks in flight; 0: one */
    ru_fact took;
} ru_coll_fact;

typedef struct ru_disk_fact {
    const char *disk; /* name in the cluster */
    bool writes;
    bool random;        /* each at another place */
    uint32_t depth;     /* how many at once; 0: one */
    int64_t size_bytes; /* of one */
    ru_fact took;
} ru_disk_fact;

typedef struct ru_step_fact {
    const char *job;
    uint32_t rank;
    uint32_t workers;                                 /* of the job at that time */
    int64_t samples;                                  /* that this rank computed in one step */
    int64_t batch;                                    /* of the whole job */
    int64_t flops;                                    /* of one step of this rank */
    int64_t state_bytes;                              /* parameters, optimizer state */
    int64_t arena_bytes;                              /* temporaries */
    double compute_ns, network_ns, input_ns, wait_ns; /* means; parts of took.mean_ns */
    double gradient_noise; /* simple noise scale, samples; 0: not measured */
    ru_fact took;
} ru_step_fact;

/* The processor time of one worker, from the newest steps of its trace. */
typedef struct ru_processor_fact {
    uint32_t rank;
    double quota_ns, period_ns; /* its process may use so much in each period; 0: no bound */
    double compute_ns;          /* of a step: all threads but that of the messages */
    double message_ns;          /* of a step: the thread that sends and receives */
    double read_ns;             /* wall time that its readers, all at once, need for a step */
    ru_fact took;               /* wall time of the steps, without the first ones */
} ru_processor_fact;

typedef struct ru_request_fact {
    const char *model;
    int64_t size;      /* elements, tokens or bytes of one request, as the model counts */
    int64_t batch;     /* requests served together */
    double rate_per_s; /* arrivals of this kind */
    ru_fact took;      /* from arrival to answer */
    ru_fact served;    /* the computing alone */
} ru_request_fact;

typedef struct ru_price_fact {
    const char *market; /* as cluster.hosts[].market */
    int64_t at_s;       /* instant, seconds since 1970 */
    double usd_per_h;   /* from then on */
} ru_price_fact;

/* The lists are laid out as ru_conf_sections. */
typedef struct ru_facts {
    struct {
        const ru_op_fact *at; /* [n] by rank, then step */
        uint32_t n;
    } ops;
    struct {
        const ru_transfer_fact *at; /* [n] */
        uint32_t n;
    } transfers;
    struct {
        const ru_coll_fact *at; /* [n] */
        uint32_t n;
    } collectives;
    struct {
        const ru_disk_fact *at; /* [n] */
        uint32_t n;
    } disks;
    struct {
        const ru_step_fact *at; /* [n] */
        uint32_t n;
    } steps;
    struct {
        const ru_processor_fact *at; /* [n] by rank */
        uint32_t n;
    } processors;
    struct {
        const ru_request_fact *at; /* [n] */
        uint32_t n;
    } requests;
    struct {
        const ru_price_fact *at; /* [n] by market, then time */
        uint32_t n;
    } prices;
} ru_facts;

extern const ru_conf_table ru_fact_table, ru_op_fact_table, ru_transfer_fact_table,
    ru_coll_fact_table, ru_disk_fact_table, ru_step_fact_table, ru_processor_fact_table,
    ru_request_fact_table, ru_price_fact_table;
/* The file's keys. Its check refuses op instances that wait for a step at or behind their own, and
 * an order other than the one above. */
extern const ru_conf_table ru_facts_table;

#endif
