/* Federated training for replays: clients with data and speeds of their own, real training of a
 * small model, simulated time. Rounds run in the step machine of fleet/fed.h.
 *
 * Thread: one. */
#ifndef RU_BENCH_REPLAY_PICK_H
#define RU_BENCH_REPLAY_PICK_H

#include "base/rng.h"
#include "fleet/fed.h"

enum { RUI_FED_FEATURES = 65, RUI_FED_CLASSES = 10, RUI_FED_GROUPS = 5 };

/* Images, the last feature is 1. */
typedef struct rui_images {
    float (*x)[RUI_FED_FEATURES]; /* [n] */
    uint8_t *label;               /* [n] */
    uint32_t n;
} rui_images;

typedef struct rui_fed_in {
    const rui_images *train, *test; /* NULL: time only, no training */
    uint32_t classes;               /* that a client has */
    const double *samples;          /* [n] of each client; with images: NULL */
    const double *labels;           /* [n, n_labels] how many of each; may be NULL */
    uint32_t n_labels;
    uint32_t n, per_round, rounds, n_tiers;
    bool kmeans;
    double jitter;
    ru_pick_method method;
    uint64_t seed;
    /* At half the rounds: a tenth of the clients dies, one group takes twice as long. */
    bool upheaval;
    uint32_t retier_rounds;
} rui_fed_in;

typedef struct rui_fed_out {
    double seconds; /* of the rounds, without the profile */
    double profile_s;
    double estimate_s;   /* of the rounds, when the profile was there */
    double accuracy;     /* on all test images, mean of the last rounds */
    double worst_decile; /* mean of the tenth of the clients that fares worst */
    double share_most;   /* largest chance of a client to be in a round */
    double covered;      /* part of the clients that ever trained */
    double label_gap;    /* total variation of labels that trained from those there are */
    double oracle_s;     /* predicted with all speeds known, before and after the upheaval */
    uint32_t retiered;
} rui_fed_out;

RU_MUST_USE ru_status rui_fed_run(const rui_fed_in *in, ru_arena *arena, rui_fed_out *out,
                                  ru_err *err);

#endif
