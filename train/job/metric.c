#include "train/job/metric.h"

#include <string.h>

#define ITEM(name) #name,
static const char *const basic[] = {RU_METRIC_BASIC_LIST(ITEM, ITEM)};
static const char *const figures[] = {RU_METRIC_CLASSES_LIST(ITEM, ITEM)
                                          RU_METRIC_NUMBERS_LIST(ITEM, ITEM)};

const char *ru_job_metric(const ru_job *job, ru_loss_kind loss)
{
    uint32_t k = job->train.metric; /* a word of RU_METRIC_ALL, from 1 */
    bool classes = loss == RU_LOSS_CROSS_ENTROPY || loss == RU_LOSS_BINARY_CROSS_ENTROPY;
    if (k == 0) {
        return classes ? "accuracy" : "loss";
    }
    return k <= RU_ARRAY_LEN(basic) ? basic[k - 1] : figures[k - 1 - RU_ARRAY_LEN(basic)];
}

bool ru_metric_is(const char *words, const char *name)
{
    ru_str rest = ru_str_c(words), word;
    while (ru_str_next(&rest, '|', &word)) {
        if (ru_str_eq_c(word, name)) {
            return true;
        }
    }
    return false;
}

bool ru_metric_more(const char *name)
{
    return !ru_metric_is("loss|mse|perplexity|mae|rmse", name);
}

static ru_status check(const char *key, const char *name, const char *words, ru_err *err)
{
    return ru_metric_is(words, name)
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "%s: unknown metric '%s'; expected one of %s", key, name,
                         words);
}

ru_status ru_job_metrics_check(const ru_job_train *t, ru_err *err)
{
    for (uint32_t k = 0; k < t->until.n; k++) {
        RU_TRY(check("train.until", t->until.at[k].key, RU_METRIC_ALL, err));
    }
    for (uint32_t k = 0; k < t->metrics.n; k++) {
        RU_TRY(
            check("train.metrics", t->metrics.at[k], RU_METRIC_CLASSES "|" RU_METRIC_NUMBERS, err));
    }
    return RU_OK;
}

static bool asked(const ru_job *job, const char *name)
{
    const ru_job_train *t = &job->train;
    bool yes = strcmp(ru_job_metric(job, RU_LOSS_MSE), name) == 0;
    for (uint32_t k = 0; k < t->metrics.n; k++) {
        yes = yes || strcmp(t->metrics.at[k], name) == 0;
    }
    for (uint32_t k = 0; k < t->until.n; k++) {
        yes = yes || strcmp(t->until.at[k].key, name) == 0;
    }
    return yes;
}

ru_status ru_job_figures(const ru_job *job, ru_arena *arena, const char *const **names, uint32_t *n,
                         ru_err *err)
{
    const char **list = RU_NEW(arena, const char *, RU_ARRAY_LEN(figures));
    if (list == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the job is full");
    }
    *n = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(figures); k++) {
        if (asked(job, figures[k])) {
            list[(*n)++] = figures[k];
        }
    }
    *names = list;
    return RU_OK;
}
