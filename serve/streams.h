/* Texts that a language model writes at one time: which rows the next step has, and what its logits
 * become. No thread.
 *
 *   ask --> waits --> has a slot: its prompt goes in piece by piece --> one token a step --> ended
 *
 * A step has one row of every stream whose prompt is in, and one piece of the prompt of the stream
 * of the highest priority that asked first: a long prompt delays the others by one piece a step.
 * The piece is as large as lets the step take at most one and a half times what it takes without:
 * by measured times of more rows, and of positions that a piece sees. A step has at most as many
 * rows whose logits are wanted as there are slots: prompts whose log probabilities are asked go in
 * by smaller pieces.
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

/* What steps take, lately, by their size of 1, 2, 4, ... rows; 0: there was none. */
enum { RU_PACE_SIZES = 32 };
typedef struct ru_pace {
    int64_t rows_max;
    int64_t opened_ns[RU_PACE_SIZES]; /* of rows that see no position */
    double alone_ns[RU_PACE_SIZES];   /* of steps without a prompt ... */
    double alone_see[RU_PACE_SIZES];  /* ... whose rows saw so many positions together */
    double seen_ns[RU_PACE_SIZES];    /* of each position more */
} ru_pace;

typedef struct ru_pace_step {
    int64_t rows, going; /* all; without the prompts' */
    int64_t going_see;   /* positions that they see together */
    int64_t piece_see;   /* that the last row of the first piece sees; 0: there is no piece */
} ru_pace_step;

/* At most so many rows, at least one of the prompt: `rows` is not read, `piece_see` is where the
 * piece begins. */
int64_t ru_pace_rows(const ru_pace *p, const ru_pace_step *s);
/* The step took `ns`. */
void ru_pace_learn(ru_pace *p, const ru_pace_step *s, int64_t ns);

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
