/* What came out of a job in the simulator, against one loop. */
#include <string.h>

#include "lab/worlds/params_app.h"

bool ru_params_exact(const ru_params_job *job)
{
    return job->driver == RU_ENGINE_BSP && !job->rotate;
}

/* Every change of the counts is there once, except those that the engine said are lost. */
static ru_status compare_counts(const ru_params_job *job, const ru_params_result *is, ru_err *err)
{
    double low[128], high[128];
    ru_params_counts(job, is->lost, ru_params_exact(job), low, high);
    for (int64_t i = 0; i < is->floats[0]; i++) {
        double n = (double)is->table[0][i];
        if (!(n >= low[i] && n <= high[i])) {
            return RU_FAIL(err, RU_E_BUG,
                           "seed %llu: row %lld was counted %g times, expected %g to %g",
                           (unsigned long long)job->seed, (long long)i, n, low[i], high[i]);
        }
    }
    return RU_OK;
}

static ru_status compare(const ru_params_job *job, const ru_params_result *is, ru_err *err)
{
    if (job->divided) {
        int64_t wrong = ru_params_item_wrong(job, is);
        return wrong == 0 ? RU_OK
                          : RU_FAIL(err, RU_E_BUG, "seed %llu: the count of item %lld is wrong",
                                    (unsigned long long)job->seed, (long long)(wrong / 2));
    }
    ru_params_result a;
    if (job->counted) {
        return is->wrong == 0
                   ? RU_OK
                   : RU_FAIL(err, RU_E_BUG, "seed %llu: %lld rows are not what the states say",
                             (unsigned long long)job->seed, (long long)is->wrong);
    }
    if (is->recoveries > 0) {
        return compare_counts(job, is, err);
    }
    ru_params_alone(job, &a);
    ru_status st = RU_OK;
    uint32_t n = job->driver == RU_ENGINE_BSP ? RU_PARAMS_TABLES : 1; /* the counts commute */
    for (uint32_t t = 0; t < n && a.table[t] != NULL; t++) {
        for (int64_t i = 0; st == RU_OK && i < a.floats[t]; i++) {
            if (memcmp(&a.table[t][i], &is->table[t][i], 4) != 0) {
                st = RU_FAIL(err, RU_E_BUG,
                             "seed %llu: table %u, float %lld is %.9g instead of %.9g",
                             (unsigned long long)job->seed, t, (long long)i,
                             (double)is->table[t][i], (double)a.table[t][i]);
            }
        }
    }
    if (st == RU_OK && n > 1 && memcmp(a.sums, is->sums, sizeof a.sums) != 0) {
        st = RU_FAIL(err, RU_E_BUG, "seed %llu: the sums of the last clock differ",
                     (unsigned long long)job->seed);
    }
    ru_params_result_fini(&a);
    return st;
}

ru_status ru_params_check(const ru_params_job *job, ru_err *err)
{
    ru_params_result r;
    ru_err why = {0};
    ru_status st = ru_params_run(job, &r, &why);
    if (st != RU_OK || r.status != RU_OK) {
        st = RU_FAIL(err, RU_E_BUG, "seed %llu: %s%.500s", (unsigned long long)job->seed, r.text,
                     why.text);
    } else if (!r.ended && r.living > 0) {
        st = RU_FAIL(err, RU_E_BUG, "seed %llu: no end", (unsigned long long)job->seed);
    } else if (r.from_disk + r.counted == 0 && r.told_again > 0) {
        st = RU_FAIL(err, RU_E_BUG, "seed %llu: the objective of a clock was told twice",
                     (unsigned long long)job->seed);
    } else if (r.ends > 0) {
        st = RU_FAIL(err, RU_E_BUG, "seed %llu: the end was told twice",
                     (unsigned long long)job->seed);
    } else if (r.ended) {
        st = compare(job, &r, err);
    }
    ru_params_result_fini(&r);
    return st;
}
