/* A federation in simulated time: the machine of rounds and the run of a live server, the training
 * of live clients, and no network. Clients share one executable for each size of a batch; their
 * data are views (fleet/split.h), the time they take is drawn from a law, or a trace has it
 * (fleet/latency.h).
 *
 *   a task takes   median * speed(client) * samples / mean samples * exp(jitter * z)
 *
 * With each round the whole state is written beside the checkpoint: times, what clients owe, random
 * numbers. A simulation that is resumed goes on as if nothing had happened, to the bit.
 *
 * Only what counts is computed: the training of an answer that is averaged, and the scores of a
 * tier. Memory: the model, its activations, and about 500 bytes for each client.
 *
 * Thread: main. */
#ifndef RU_FLEET_SIM_H
#define RU_FLEET_SIM_H

#include "fleet/latency.h"
#include "fleet/split.h"
#include "train/driver/rounds.h"

typedef struct ru_fed_sim_options {
    const ru_train_options *train; /* its job's train.steps are the rounds */
    ru_split_options split;        /* clients, and their samples of the job's training data */
    ru_latency_law law;
    double median_s, spread, jitter;
    const char *trace; /* file of latencies instead of the law; NULL: none */
    double lost;       /* part of the tasks that nobody ever answers */
    double turned;     /* part of the clients that send what they learned with the other sign */
} ru_fed_sim_options;

typedef struct ru_fed_sim_result {
    ru_train_result train;
    double simulated_s;
    double decision_most_s, decision_mean_s; /* of this machine, for the choice of a round */
    double rounds_per_s;                     /* likewise, all included */
    uint32_t decisions;
    double epsilon; /* federated.privacy.noise: what all rounds tell about one client; < 0: none */
    double client_epsilon; /* the largest of one client (ru_fed_epsilon_of) */
    bool spent;            /* another round might tell more than federated.privacy.epsilon */
} ru_fed_sim_result;

/* Errors: those of ru_train_rounds, ru_split_open and ru_local_open; RU_E_DATA for a snapshot that
 * is missing, damaged, or of other clients. */
RU_MUST_USE ru_status ru_fed_sim(const ru_fed_sim_options *opt, ru_arena *arena,
                                 ru_fed_sim_result *out, ru_err *err);

#endif
