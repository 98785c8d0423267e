/* Training on functions as a step machine: workers of one epoch run steps together, until the epoch
 * ends and the next one begins with the step that was not done.
 *
 *   PLAN --CHOICE--> RUNS --all have answered, steps are left--> RUNS of the next epoch
 *                      |                                          or PLAN, where its last step was
 *                      |                                          known from the beginning
 *                      |--a call fails, no step is done for long--> FENCE, FENCED
 *                      |--their time is nearly up--> LAST (a step), and all answer behind it
 *                      '--AGAIN--> LAST, then PLAN
 *   FENCED --all have answered, or those who have not are written off--> RUNS of the next epoch
 *
 * A step is done when all sums of it are there: SUMMED. So each step is done once, in one epoch,
 * whoever ends meanwhile: a fenced epoch puts nothing more, and its unfinished step is computed
 * anew from its beginning by all. Answers of older epochs are forgotten.
 *
 * Thread: loop only. No clock; memory at init alone. */
#ifndef RU_FLEET_FUNC_H
#define RU_FLEET_FUNC_H

#include "base/arena.h"
#include "env/event.h"

enum { RU_FUNC_WHY_BYTES = 400 };

typedef struct ru_func_options {
    int64_t first, steps;  /* done already; of the whole run */
    int64_t life_ns;       /* a call must have answered after it; 0: no limit */
    int64_t stall_ns;      /* at least, without a step, before an epoch is given up; 0: 30 s */
    int64_t start_ns;      /* more, for the first step of an epoch; 0: 120 s */
    uint32_t failures_max; /* epochs one behind the other without a step; 0: 5 */
    uint32_t ahead;        /* steps that workers may have ended and that are not SUMMED yet */
    uint32_t what_first;   /* of its words */
} ru_func_options;

typedef enum ru_func_word {
    RU_FUNC_CHOICE, /* in: ru_func_choice, after PLAN; maybe at once */
    RU_FUNC_ANSWER, /* in: ru_func_answer */
    RU_FUNC_SUMMED, /* in, value: a step whose sums are all there */
    RU_FUNC_BUSY,   /* in, value: 1: steps wait for the owner; 0: no more */
    RU_FUNC_AGAIN,  /* in: choose again behind the next step */
    RU_FUNC_STOP,   /* in: nothing more */
    RU_FUNC_TIMER,
    RU_FUNC_PLAN,   /* out, value: steps done: choose */
    RU_FUNC_EPOCH,  /* out, value: it begins: the store takes its keys alone */
    RU_FUNC_STATE,  /* out, value: the store needs the state after so many steps */
    RU_FUNC_CALL,   /* out: ru_func_call */
    RU_FUNC_LAST,   /* out, value: every worker ends behind this step */
    RU_FUNC_FENCE,  /* out: the store takes nothing any more */
    RU_FUNC_FAILED, /* out, value: ru_status; data: a sentence */
    RU_FUNC_WORDS
} ru_func_word;

typedef struct ru_func_choice {
    uint32_t workers, memory_mb;
    int64_t end; /* steps: choose again there */
} ru_func_choice;

typedef struct ru_func_call {
    uint32_t epoch, rank, workers, memory_mb;
    int64_t first, end; /* steps */
} ru_func_call;

typedef enum ru_func_result {
    RU_FUNC_ENDED,   /* behind its last step, or because its epoch was fenced */
    RU_FUNC_LOST,    /* it died, its time was up, nobody answered: another one may do better */
    RU_FUNC_MEMORY,  /* it needs more memory */
    RU_FUNC_REFUSED, /* it says that nobody can do it */
} ru_func_result;

typedef struct ru_func_answer {
    uint32_t epoch, rank;
    ru_func_result result;
    int64_t step;                /* done; ENDED */
    char why[RU_FUNC_WHY_BYTES]; /* other results: a sentence */
} ru_func_answer;

/* What happened, for reports. */
typedef struct ru_func_figures {
    uint32_t epochs, fenced; /* begun; given up */
    int64_t done;            /* steps */
} ru_func_figures;

typedef struct ru_func ru_func;

/* Owner: in `arena`. Errors: RU_E_ARG, RU_E_MEM. The first event is START. */
RU_MUST_USE ru_status ru_func_init(const ru_func_options *opt, ru_arena *arena, ru_func **out,
                                   ru_err *err);
void ru_func_step(ru_func *f, const ru_event *ev, ru_effects *fx);
ru_func_figures ru_func_figures_of(const ru_func *f);

#endif
