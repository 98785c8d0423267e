/* Texts that a language model writes at one time: which rows the next step has, and what its logits
 * become. No thread.
 *
 *   ask --> waits --> has a slot: its prompt goes in piece by piece --> one token a step --> ended
 *
 * A step has one row of every stream whose prompt is in. Prompts go in by priority, then the one
 * that asked first. A few rows of one join the step where that costs little: weights are read once
 * for all. Else a piece of it is computed by itself, on an executable of its own, some operations
 * after each step: as many as take at most half of what steps without a prompt take. So a long
 * prompt delays the others by half a step, or by one operation where that takes longer; and since
 * one goes on in every step, it ends. A step, and a piece, has at most as many rows whose logits
 * are wanted as there are slots: prompts whose log probabilities are asked go in by smaller pieces.
 *
 * Of texts with one prompt the first reads it; the others wait, then take a copy of its cache.
 *
 * Thread: one at a time. */
#ifndef RU_SERVE_STREAMS_H
#define RU_SERVE_STREAMS_H

#include "serve/draw.h"
#include "serve/steps.h"

typedef enum ru_stream_end {
    RU_STREAM_RUNS,
    RU_STREAM_LENGTH, /* n_max tokens, or the model's context is full */
    RU_STREAM_STOP,   /* its last token is the end token */
    RU_STREAM_DROPPED,
    RU_STREAM_FAILED,
} ru_stream_end;

enum { RU_SCORES_MAX = 20 };

/* Log probabilities of tokens by the model's own softmax, each given all before it. */
typedef struct ru_scores {
    uint32_t k;     /* of the most likely tokens too, at most RU_SCORES_MAX and the vocabulary */
    bool prompt;    /* of the prompt too, but of its first token; else of what is written alone */
    float *own;     /* [n_max] */
    uint32_t *top;  /* [n_max, k] tokens, the most likely first */
    float *top_own; /* [n_max, k] */
} ru_scores;

/* Filled by who asks, down to `kin`; must stay until it has ended. With n_max = n_prompt it only
 * reads its prompt. */
typedef struct ru_stream {
    int64_t *tokens;         /* [n_max] the prompt, at least one token; then what was written */
    int64_t n_prompt, n_max; /* n_prompt <= n_max */
    int64_t end_token;       /* -1: none */
    uint32_t priority;       /* 0 is the highest: of the streams that wait, and of prompts */
    ru_draw draw;
    ru_scores *scores; /* NULL: nobody asks */
    uint64_t kin;      /* those of one kin have the same prompt, which is read once; 0: none */
    int64_t n;         /* tokens so far */
    int64_t cached;    /* of them in the cache */
    ru_stream_end end;
    struct ru_stream *next; /* of those that wait */
    bool leaves;            /* nobody wants it any more */
} ru_stream;

/* How much of prompts goes in beside texts that go on. */
enum { RU_PACE_SIZES = 32 };
typedef struct ru_pace {
    int64_t rows, rows_min, rows_max; /* of the next piece; its bounds: powers of two */
    int64_t opened_ns[RU_PACE_SIZES]; /* of steps of 1, 2, 4, ... rows that see no position */
    double alone_ns;                  /* of steps without rows of prompts, lately; 0: none */
} ru_pace;

/* Rows of a step where `going` texts see `going_see` positions together, and `left` rows of a
 * prompt that begin at position `at` wait: above `going`, so many of the prompt join it; `going`:
 * it goes in by pieces. */
int64_t ru_pace_joined(const ru_pace *p, int64_t going, int64_t going_see, int64_t at,
                       int64_t left);
/* A step without rows of prompts took `ns`: how long may a piece take before the next one? */
int64_t ru_pace_budget_ns(ru_pace *p, int64_t ns);
/* The longest operation of a piece of p->rows took `ns`: how many the next one has. */
void ru_pace_learn(ru_pace *p, int64_t ns);

typedef struct ru_streams ru_streams;

/* `steps` must live until close. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_streams_open(ru_steps *steps, ru_streams **out, ru_err *err);
void ru_streams_close(ru_streams *s); /* NULL is fine */
void ru_streams_ask(ru_streams *s, ru_stream *t);
/* It ends before the next step. */
void ru_streams_drop(ru_stream *t);
/* Compute one step; false: there was nothing to do. A step that fails ends its streams; `err` says
 * why. */
bool ru_streams_step(ru_streams *s, ru_err *err);

#endif
