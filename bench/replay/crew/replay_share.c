/* Shares of a batch: how long the slowest worker takes, over seeded random speeds. The bound is the
 * fractional one, batch over the sum of speeds. */
#include <math.h>

#include "base/rng.h"
#include "bench/replay/replay.h"
#include "plan/crew/share.h"

typedef struct totals {
    double ours, equal, bound;
} totals;

static ru_status one(ru_replay *r, uint32_t workers, int64_t batch, uint64_t seed, totals *t,
                     ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(r->arena);
    double *speed = RU_NEW(r->arena, double, workers);
    if (speed == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", workers);
    }
    ru_rng rng = ru_rng_from(seed, workers);
    double sum = 0, slowest = 0;
    for (uint32_t i = 0; i < workers; i++) {
        speed[i] = 100 * ru_math_exp(0.5 * ru_rng_normal(&rng));
        sum += speed[i];
        int64_t equal = batch / workers + (i < batch % workers ? 1 : 0);
        slowest = fmax(slowest, (double)equal / speed[i]);
    }
    const ru_share_in in = {.batch = batch, .n = workers, .speed = speed};
    ru_share_plan plan;
    RU_TRY(ru_plan_share(&in, r->arena, &plan, err));
    RU_TRY(ru_plan_share_check(&in, &plan, err));
    t->ours += plan.predicted_s;
    t->equal += slowest;
    t->bound += (double)batch / sum;
    ru_arena_rewind(r->arena, mark);
    return RU_OK;
}

ru_status rui_replay_share(ru_replay *r, ru_err *err)
{
    static const uint32_t workers[] = {2, 4, 16, 64, 1024};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(workers); k++) {
        totals t = {0};
        uint32_t seeds = r->quick ? 5 : 50;
        if (ru_replay_have(r, "%u workers", workers[k])) {
            continue;
        }
        for (uint32_t s = 0; s < seeds; s++) {
            RU_TRY(one(r, workers[k], 32 * (int64_t)workers[k], s, &t, err));
        }
        char name[64];
        ru_text text = ru_text_into(name, sizeof name);
        ru_text_putf(&text, "%u workers, mean of %u seeds", workers[k], seeds);
        ru_replay_row row = ru_replay_row_of(name, "step_s", true);
        row.ours = t.ours / seeds;
        row.bound = t.bound / seeds;
        row.goal = row.bound * 1.1; /* whole samples cost up to one sample of the slowest */
        ru_replay_baseline(r, &row, "equal", t.equal / seeds);
        RU_TRY(ru_replay_add(r, &row, err));
        RU_TRY(ru_replay_keep(r, err));
    }
    return RU_OK;
}
