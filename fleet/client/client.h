/* A client of a federation, for programs with a trainer of their own: the model comes in, what the
 * program made of it goes out, and the samples stay where they are. `rubato fed join` is such a
 * program.
 *
 *   open -> model -> ready -> next -> trained | scored -> next ... -> over -> close
 *
 * The calls block; a thread of the library's own keeps the connection, which is made again whenever
 * it is lost. With masked updates the library masks what the program learned. Memory: one update,
 * and the model once more with masks. A process may have several clients. An answer to no work, or
 * a second `ready`, is a bug and ends the process with a sentence; after an error `close` is left.
 * Out of its hours a client stays connected and is asked nothing; work in hand is given up then.
 *
 * Thread: one at a time, but ru_fed_client_stop and ru_fed_client_stopped, from any; a call that
 * blocks returns when another thread stops the client. Not in a child of fork(). */
#ifndef RU_FLEET_CLIENT_CLIENT_H
#define RU_FLEET_CLIENT_CLIENT_H

#include "base/status.h"

RU_API_BEGIN

typedef struct ru_fed_client ru_fed_client;

typedef struct ru_fed_client_options {
    const char *address; /* of the server: HOST:PORT or [v6]:PORT */
    const char *token;   /* NAME:KEY, as `rubato fed token NAME` prints it */
    int64_t values;      /* of the model that the program trains; another one is refused; 0: any */
    int64_t values_max;  /* a larger model is refused before it is received; 0: none is */
    int64_t wait_ns;     /* for a server that is not there, at first or again; 0: for good */
    const char *hours;   /* of the local day, in which it takes part: "22:00-06:00"; NULL: all */
    bool signals;        /* stop signals end it, as all such clients of the process */
    bool quiet;          /* no warning of the process's library goes to stderr from now on */
} ru_fed_client_options;

/* A parameter, or running statistics, of the model. */
typedef struct ru_fed_tensor {
    const char *name;
    int64_t at, count; /* in the values of the model */
    const int64_t *dims;
    uint32_t rank;
} ru_fed_tensor;

typedef struct ru_fed_model {
    int64_t count;  /* values, f32 */
    int64_t params; /* of parameters, which come first */
    bool masked;    /* updates are: the library keeps the model once more */
    uint64_t hash;  /* of names and shapes */
    const ru_fed_tensor *tensors;
    uint32_t n_tensors;
    const char *job; /* JSON: the job in `job`, facts of the model */
    int64_t job_bytes;
} ru_fed_model;

typedef struct ru_fed_work {
    bool over;     /* the job is over, or somebody stopped this client; nothing else is set */
    bool evaluate; /* score the model on samples that are held out; else train it */
    uint32_t round, epochs; /* from 1; passes over the samples */
    float *values;          /* [count] of the model; training changes them */
} ru_fed_work;

typedef struct ru_fed_result {
    double loss;     /* mean over the steps; one that is no number ends the client */
    double loss_rms; /* root of the mean of its square; 0: as the loss */
    double accuracy; /* of the steps, 0 to 1; < 0: not known */
} ru_fed_result;

typedef struct ru_fed_score {
    double correct, count; /* of labels; count 0: the model tells no classes apart */
    double loss;           /* mean */
} ru_fed_score;

/* Dials the server and returns at once. Errors: RU_E_USAGE for an address, token or hours that are
 * none, RU_E_CONFIG for hours in a time zone that the system does not know, RU_E_MEM. */
RU_MUST_USE ru_status ru_fed_client_open(const ru_fed_client_options *opt, ru_fed_client **out,
                                         ru_err *err);
/* Waits for the model; view until close. Errors: RU_E_PERM with the server's sentence when it may
 * not take part; RU_E_PEER after wait_ns without a server; RU_E_DATA for another model, RU_E_LIMIT
 * for a larger one; RU_E_CANCELLED when somebody stopped it. */
RU_MUST_USE ru_status ru_fed_client_model(ru_fed_client *c, const ru_fed_model **out, ru_err *err);
/* It takes part with so many samples, and `held` others that it scores. Once, after the model.
 * Errors: RU_E_USAGE unless there are 1 to 10^9 samples, and at most 10^9 are held out; RU_E_MEM.
 */
RU_MUST_USE ru_status ru_fed_client_ready(ru_fed_client *c, int64_t samples, int64_t held,
                                          ru_err *err);
/* Waits for what is to be done, or for the end. Errors: those of the model; what the program said
 * that failed; RU_E_USER for updates that masks cannot hide (federated.secure.range). */
RU_MUST_USE ru_status ru_fed_client_next(ru_fed_client *c, ru_fed_work *out, ru_err *err);
/* Nobody waits for the work in hand any more: answer it at once, with what there is. */
bool ru_fed_client_stopped(const ru_fed_client *c);
/* The answer to the work that `next` gave, whose values are not the program's any more. */
void ru_fed_client_trained(ru_fed_client *c, const ru_fed_result *result);
void ru_fed_client_scored(ru_fed_client *c, const ru_fed_score *score);
/* It cannot be done: the server hears the sentence, and `next` returns it. */
void ru_fed_client_failed(ru_fed_client *c, const ru_err *why);
/* `next` says that it is over. Also from a signal handler. */
void ru_fed_client_stop(ru_fed_client *c);
void ru_fed_client_close(ru_fed_client *c); /* NULL is fine */

RU_API_END

#endif
