/* Inputs of policies that nobody wrote: the example of a policy, changed at random.
 * Thread: test only. */
#ifndef RU_TEST_POLICY_DRAW_H
#define RU_TEST_POLICY_DRAW_H

#include "base/rng.h"
#include "plan/row/policy.h"

/* How an input is changed: by what could be, or, torn, by anything that can be written. */
typedef struct ru_policy_draw {
    ru_rng rng;
    ru_arena *arena;
    bool torn;
    bool ours; /* the method stays that of the example */
} ru_policy_draw;

ru_policy_draw ru_policy_draw_of(const ru_policy *p, uint64_t seed, ru_arena *arena);
/* The changed example of `p` as the text of a file, and as `rubato plan` reads it from there. */
RU_MUST_USE ru_status ru_policy_draw_input(ru_policy_draw *s, const ru_policy *p, const void **out,
                                           ru_str *text, ru_err *err);

#endif
