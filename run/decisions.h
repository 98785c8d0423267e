/* What was decided in a run, and what was measured of it: the plans that its owners installed, each
 * with its input and predicted figures, and times of collectives. They become the plans and facts
 * of the run's world file; each plan is also appended to OUT/plans/installed.jsonl (rubato.plan/1)
 * when it is installed, and each measured figure to OUT/plans/measured.jsonl (rubato.measured/1),
 * so that a killed run has them too and others can watch them.
 *
 * The newest RU_DECISIONS_MAX plans are kept, and of each policy the newest one.
 *
 * Thread: any; a lock inside. */
#ifndef RU_RUN_DECISIONS_H
#define RU_RUN_DECISIONS_H

#include "plan/row/policy.h"
#include "world/world.h"

enum { RU_DECISIONS_MAX = 256, RU_DECISIONS_SUMS_MAX = 4096 };

typedef struct ru_decisions ru_decisions;

/* `dir`: the run directory, `job`: its name; views until close. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_decisions_open(const char *dir, const char *job, ru_decisions **out,
                                        ru_err *err);
void ru_decisions_close(ru_decisions *d); /* NULL is fine */

/* `policy` answered `in`, and the answer is in force. The same question as the last one of this
 * policy adds nothing; with `many` (several of its plans are in force at once) nor does one that
 * stands already. The policy is asked once more, for its predicted figures. What cannot be
 * kept is logged: training does not stop for it. NULL records nothing. */
void ru_decisions_add(ru_decisions *d, const ru_policy *policy, const void *in, bool many);
/* A figure of the newest plan of `policy` as measured; `predicted` (NAN: as the plan has it) for a
 * figure that the plan itself does not state. Nothing happens when there is no such plan. */
void ru_decisions_measured(ru_decisions *d, const ru_policy *policy, const char *figure,
                           double predicted, double measured);
/* The newest plan of `policy`, for records of what it made: the low half of its id, 0 when there is
 * none, and a predicted figure in seconds as nanoseconds, 0 when it states none. */
uint32_t ru_decisions_newest(ru_decisions *d, const ru_policy *policy, const char *figure,
                             uint32_t *predicted_ns);
/* Times of a collective; replaces those of the same one. */
void ru_decisions_sum(ru_decisions *d, const ru_coll_fact *fact);

/* Fill plans and facts.collectives. Owner: copies in `arena`. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_decisions_get(ru_decisions *d, ru_arena *arena, ru_world *into,
                                       ru_err *err);

#endif
