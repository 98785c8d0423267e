#include "train/job/batch.h"

#include <stdlib.h>

/* The k-th part of the run, from 0: epochs [*from, *end), from 0, with one batch. */
static int64_t part_of(const ru_job_train *j, uint32_t k, int64_t *from, int64_t *end)
{
    const ru_conf_pairs *s = &j->batch_schedule;
    *from = k == 0 ? 0 : strtoll(s->at[k - 1].key, NULL, 10) - 1;
    *end = k < s->n ? strtoll(s->at[k].key, NULL, 10) - 1 : INT64_MAX;
    return k == 0 ? j->batch : (int64_t)s->at[k - 1].value;
}

int64_t ru_job_batch_at(const ru_job_train *j, int64_t position, int64_t count)
{
    int64_t epoch = count > 0 ? position / count : 0, from, end, batch = j->batch;
    for (uint32_t k = 0; k <= j->batch_schedule.n; k++) {
        int64_t here = part_of(j, k, &from, &end);
        batch = epoch >= from ? here : batch;
    }
    return batch;
}

/* Walk the parts: at most `steps` steps, at most up to sample `until`. */
static int64_t walk(const ru_job_train *j, int64_t count, int64_t steps, int64_t until,
                    int64_t *position)
{
    int64_t done = 0, at = 0;
    for (uint32_t k = 0; k <= j->batch_schedule.n && at < until && done < steps; k++) {
        int64_t from, end, batch = part_of(j, k, &from, &end);
        int64_t to = end < INT64_MAX / 4 / count && end * count < until ? end * count : until;
        int64_t n = to > at ? (to - at - 1) / batch + 1 : 0;
        n = n < steps - done ? n : steps - done;
        done += n;
        at += n * batch;
    }
    *position = at;
    return done;
}

int64_t ru_job_epoch_steps(const ru_job_train *j, int64_t count)
{
    int64_t position;
    if (j->epochs == 0 || count <= 0 || j->epochs >= INT64_MAX / 4 / count) {
        return INT64_MAX;
    }
    return walk(j, count, INT64_MAX, j->epochs * count, &position);
}

int64_t ru_job_samples_of(const ru_job_train *j, int64_t steps, int64_t count)
{
    int64_t position = 0;
    if (count <= 0) {
        return steps * j->batch;
    }
    (void)walk(j, count, steps, INT64_MAX / 4, &position);
    return position;
}

int64_t ru_job_batch_steps(const ru_job_train *j, int64_t position, int64_t count)
{
    for (uint32_t k = 0; k < j->batch_schedule.n && count > 0; k++) {
        int64_t from, end, batch = part_of(j, k, &from, &end);
        if (position / count < end && end < INT64_MAX / 4 / count) {
            return (end * count - position - 1) / batch + 1;
        }
    }
    return INT64_MAX;
}

ru_status ru_job_batches_check(const ru_job_train *j, ru_err *err)
{
    int64_t before = 1;
    for (uint32_t k = 0; k < j->batch_schedule.n; k++) {
        const char *key = j->batch_schedule.at[k].key;
        double value = j->batch_schedule.at[k].value;
        char *end;
        int64_t epoch = strtoll(key, &end, 10);
        if (*end != '\0' || end == key || epoch <= before || epoch > INT32_MAX) {
            return RU_FAIL(
                err, RU_E_CONFIG,
                "train.batch_schedule: '%s' is no epoch after %lld; expected epochs from "
                "2 on in rising order, as in {3: 256, 6: 512}",
                key, (long long)before);
        }
        bool whole = value >= 1 && value <= 1e9 && value - (double)(int64_t)value == 0;
        if (!whole || (int64_t)value % j->accumulate != 0) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.batch_schedule: the batch from epoch %lld on is %g; expected a "
                           "whole number from 1 to 1e9%s",
                           (long long)epoch, value,
                           whole ? ", a multiple of train.accumulate" : "");
        }
        before = epoch;
    }
    return RU_OK;
}
