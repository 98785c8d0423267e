/* How a worker reads its data: bytes of a request and requests outstanding, found from measured
 * windows; and how deep it reads ahead.
 *
 *   DEEPEN --no gain--> SIZE --all tried--> SHRINK --knee found--> STEADY <--every try_s--> TRY
 *      ^                                                             |
 *      +------- rate or latency far from the chosen window's --------+
 *
 * DEEPEN finds what the storage delivers at most, SIZE the best size of a request at that depth,
 * SHRINK the least depth that loses nothing: a model of the storage (cost/disk.h) says where, a
 * window proves it. The tuner is a pure function: state and a window in, state out.
 *
 * A reader that changes its setting still has reads of the old one outstanding: it bounds their sum
 * by the memory itself.
 *
 * Source: hashemi-2020 (aim, ranges and phases); the model and the order of its steps are ours.
 * Cost: O(1) a window, SHRINK fits a model to at most RU_READ_SEEN windows. Thread: any, pure. */
#ifndef RU_PLAN_READ_H
#define RU_PLAN_READ_H

#include "cost/disk.h"

enum {
    RU_READ_SEEN = 32, /* windows that the search keeps; more: it takes what it has */
    RU_READ_DEPTH_MAX = 4096,
    RU_READ_AHEAD_MAX = 1 << 20, /* batches */
    RU_READ_WINDOWS_MAX = 1 << 16,
};

typedef enum ru_read_method {
    RU_READ_MODEL,  /* ours */
    RU_READ_PHASES, /* depth doubles, then size, then depth halves; waiting is punished */
    RU_READ_CLIMB,  /* one request more while that helps, one sample a request */
    RU_READ_AIMD,   /* one more each window, half when requests wait */
    RU_READ_GRID,   /* every point of the grid, then the best */
    RU_READ_ONE,    /* one sample at a time; a loader without workers */
    RU_READ_LOADER2,
    RU_READ_LOADER8,
    RU_READ_CORES,   /* as many as there are cores, one sample each */
    RU_READ_FIXED16, /* 16 samples at a time */
    RU_READ_AHEAD,   /* what the system reads ahead in a sequential file: 128 KiB, 2 at a time */
} ru_read_method;

typedef struct ru_read_window {
    int64_t size_bytes; /* of a request */
    uint32_t depth;     /* outstanding */
    double seconds;     /* > 0; without the ramp */
    double bytes_per_s; /* delivered while there was room for them */
    double error;       /* standard error of bytes_per_s */
    double latency_s;   /* mean of a request */
    double stall_s;     /* the trainer waited for data */
} ru_read_window;

typedef struct ru_read_in {
    ru_read_method method;
    int64_t sample_bytes;             /* mean size of a sample, >= 1 */
    int64_t size_min, size_max;       /* bytes of a request; rounded inwards to powers of two */
    uint32_t depth_max;               /* 1 .. RU_READ_DEPTH_MAX, rounded down to a power of two */
    uint32_t depth_min;               /* rounded up, within depth_max and memory; 0: 1 */
    int64_t memory_max_bytes;         /* size * depth never exceeds it */
    double need_bytes_per_s;          /* of the trainer; 0: as much as there is */
    double batch_bytes, step_s;       /* for the depth of reading ahead */
    double delivery_s, delivery_sd_s; /* of a batch, from asked for to decoded; 0: not measured */
    uint32_t ahead_min, ahead_max;    /* batches; 0: 1, and as many as fit memory_max_bytes */
    uint32_t cores;
    uint64_t seed;                /* which neighbour is tried */
    double gain_min, loss_max;    /* fractions: a change must gain so much; shrinking may lose so
                                     much */
    double try_s;                 /* a neighbour is tried so often */
    const ru_read_window *window; /* [n] measured so far, in order */
    uint32_t n;
} ru_read_in;

typedef enum ru_read_phase {
    RU_READ_DEEPEN,
    RU_READ_SIZE,
    RU_READ_SHRINK,
    RU_READ_STEADY,
    RU_READ_TRY,
} ru_read_phase;

typedef struct ru_read_state {
    ru_read_phase phase;
    int64_t size_bytes; /* of the next window */
    uint32_t depth;
    ru_read_window best;               /* what is in force, or the best of the search so far */
    ru_read_window seen[RU_READ_SEEN]; /* of this search */
    uint32_t n_seen;
    ru_disk disk; /* last fit; all 0: none yet */
    /* inside the search */
    uint32_t turn;           /* SIZE: candidate; SHRINK: windows so far; GRID: point */
    uint32_t fits, fits_not; /* SHRINK: least depth that loses nothing, largest that does */
    int64_t first_size;      /* of this search */
    double most;             /* SHRINK: score to keep */
    /* steady */
    double tried_s, calm_s; /* since the last try; without a stall */
    uint32_t odd;           /* windows in a row that are far from `best` */
    uint32_t tries, changes;
} ru_read_state;

/* The state before the first window. `in` has been checked (ru_read_in_check). */
void ru_read_begin(const ru_read_in *in, ru_read_state *s);
/* The next state, after a window at s->size_bytes and s->depth. Windows of other settings only
 * count as time. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_read_next(const ru_read_in *in, const ru_read_window *w, ru_arena *scratch,
                                   ru_read_state *s, ru_err *err);
/* Errors: RU_E_ARG. */
RU_MUST_USE ru_status ru_read_in_check(const ru_read_in *in, ru_err *err);

typedef struct ru_read_plan {
    ru_read_phase phase;
    int64_t size_bytes;
    uint32_t depth;
    uint32_t read_ahead; /* batches in the buffer */
    uint32_t changes;    /* of the setting in force since it was steady */
    bool fitted;         /* `disk` holds a fit to all windows */
    ru_disk disk;
    double bytes_per_s, latency_s; /* as measured there, else as the model predicts; 0: unknown */
} ru_read_plan;

/* What to do after all windows of `in`. Cost: O(n). Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_read(const ru_read_in *in, ru_arena *scratch, ru_read_plan *plan,
                                   ru_err *err);
/* Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_read_check(const ru_read_in *in, const ru_read_plan *plan,
                                         ru_err *err);

#endif
