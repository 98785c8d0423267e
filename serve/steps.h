/* A language model in steps: executables for 1, 2, 4, ... rows of new positions, on caches that
 * hold the earlier ones of several sequences.
 *
 * Rows of a step belong to any sequences: the next position of some, a piece of the prompt of
 * another. All executables share parameters and caches.
 *
 * Thread: one at a time. */
#ifndef RU_SERVE_STEPS_H
#define RU_SERVE_STEPS_H

#include "serve/model.h"

typedef struct ru_steps ru_steps;

typedef struct ru_steps_options {
    ru_exe_options exe;
    uint32_t slots;   /* sequences at one time */
    int64_t rows_max; /* of a step; rounded down to a power of two, at least twice `slots` */
} ru_steps_options;

typedef struct ru_steps_row {
    int64_t token, slot, at; /* its position in the sequence: all before it have been rows */
    bool wanted;             /* are its logits asked? At most `slots` of a step */
} ru_steps_row;

typedef struct ru_steps_facts {
    int64_t context, vocab, slots, rows_max;
    int64_t piece_min; /* rows of the smallest piece */
} ru_steps_facts;

/* `source` must live until close. Errors: RU_E_UNSUPPORTED when the model has no form in steps;
 * those of the source and of ru_exe_open. */
RU_MUST_USE ru_status ru_steps_open(const ru_source *source, const ru_steps_options *opt,
                                    ru_steps **out, ru_err *err);
void ru_steps_close(ru_steps *s); /* NULL is fine */
ru_steps_facts ru_steps_facts_get(const ru_steps *s);

/* Compute `n` rows, 1 .. rows_max. *logits [wanted, vocab], in the order of rows; view until the
 * next run. Errors: RU_E_DATA for a token, slot or position that there is not. */
RU_MUST_USE ru_status ru_steps_run(ru_steps *s, const ru_steps_row *rows, int64_t n,
                                   const float **logits, ru_err *err);
/* Rows that are computed piece by piece, beside steps of at most `slots` rows of other sequences:
 * begin, which forgets an earlier one, then some operations at a time. `rows` is a power of two
 * from piece_min to rows_max, `n` at most so many; with fewer the executable is the same. */
void ru_steps_piece_begin(ru_steps *s, int64_t rows, const ru_steps_row *at, int64_t n);
/* At least one operation, and more while what they took and what the next one took last time are
 * within `budget_ns`. *logits stays NULL until the last one has run. Errors: as ru_steps_run; the
 * piece is over. */
RU_MUST_USE ru_status ru_steps_piece_go(ru_steps *s, int64_t budget_ns, const float **logits,
                                        ru_err *err);
/* The longest operation of the last piece of so many rows; 0: there was none. */
int64_t ru_steps_piece_longest_ns(const ru_steps *s, int64_t rows);
/* The first `n` positions of slot `from` become those of `to`, another one. */
void ru_steps_copy(ru_steps *s, int64_t from, int64_t to, int64_t n);
/* Measured time of a step of so many rows that see no position, when it was opened. */
int64_t ru_steps_opened_ns(const ru_steps *s, int64_t rows);

#endif
