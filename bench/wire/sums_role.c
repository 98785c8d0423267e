/* One process of the benchmark of sums. */
#include "bench/wire/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "env/file/file.h"

enum { SKIPPED = 2 }; /* steps that open windows */

ru_status rui_sums_write(const char *path, const rui_sums_job *job, ru_arena *arena, ru_err *err)
{
    const ru_script *s = &job->script;
    ru_text t = ru_text_arena(arena);
    ru_text_putf(&t, "%u %lld %u %u %u %d %d %.3f\n", job->founders, (long long)job->steps, s->n,
                 job->n_table, job->flight, job->held ? 1 : 0, job->serial ? 1 : 0, s->sample_ns);
    for (uint32_t k = 0; k < s->n; k++) {
        ru_text_putf(&t, "%lld %.9f %.9f\n", (long long)s->size_bytes[k], s->ready[k], s->need[k]);
    }
    for (uint32_t b = 0; b < job->n_table; b++) {
        const ru_sums_cut *c = &job->table[b];
        ru_text_putf(&t, "%u %u %lld %lld %u\n", c->first, c->n, (long long)c->offset_bytes,
                     (long long)c->size_bytes, c->only);
    }
    return ru_file_replace(path, t.p, t.n, err);
}

static int64_t number(char **at)
{
    return strtoll(*at, at, 10);
}

static ru_status read_job(const char *path, ru_arena *arena, rui_sums_job *job, ru_err *err)
{
    char *text;
    int64_t size;
    RU_TRY(ru_file_read(path, 64 << 20, arena, &text, &size, err));
    *job = (rui_sums_job){.founders = (uint32_t)number(&text), .steps = number(&text)};
    uint32_t n = (uint32_t)number(&text);
    job->n_table = (uint32_t)number(&text);
    job->flight = (uint32_t)number(&text);
    job->held = number(&text) != 0;
    job->serial = number(&text) != 0;
    job->script = (ru_script){.sample_ns = strtod(text, &text), .n = n};
    int64_t *bytes = RU_NEW(arena, int64_t, n);
    double *ready = RU_NEW(arena, double, n), *need = RU_NEW(arena, double, n);
    ru_sums_cut *table = RU_NEW(arena, ru_sums_cut, (int64_t)job->n_table + 1);
    if (bytes == NULL || ready == NULL || need == NULL || table == NULL) {
        return RU_FAIL(err, RU_E_MEM, "%s: no memory for %u gradients", path, n);
    }
    for (uint32_t k = 0; k < n; k++) {
        bytes[k] = number(&text);
        ready[k] = strtod(text, &text);
        need[k] = strtod(text, &text);
    }
    for (uint32_t b = 0; b < job->n_table; b++) {
        table[b].first = (uint32_t)number(&text);
        table[b].n = (uint32_t)number(&text);
        table[b].offset_bytes = number(&text);
        table[b].size_bytes = number(&text);
        table[b].only = (uint32_t)number(&text);
    }
    job->script.size_bytes = bytes;
    job->script.ready = ready;
    job->script.need = need;
    job->script.idle_ns = 1000;
    job->table = job->n_table > 0 ? table : NULL;
    return RU_OK;
}

/* Of the times between commits. */
static int64_t median_step(const int64_t *commit_ns, int64_t n)
{
    double took[RU_BENCH_ROUNDS_MAX];
    uint32_t k = 0;
    for (int64_t i = SKIPPED; i < n && k < RU_ARRAY_LEN(took); i++) {
        took[k++] = (double)(commit_ns[i] - commit_ns[i - 1]);
    }
    return k > 0 ? (int64_t)ru_bench_stat_of(took, k).median : 0;
}

static ru_status run(const char *const *words, ru_arena *arena, ru_err *err)
{
    static const char token[] = "of the processes of the benchmark";
    rui_sums_job job;
    RU_TRY(read_job(words[4], arena, &job, err));
    int64_t *commit_ns = RU_NEW(arena, int64_t, job.steps);
    if (commit_ns == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld steps", (long long)job.steps);
    }
    const ru_script_run_options o = {.script = &job.script,
                                     .batch = job.founders,
                                     .steps = job.steps,
                                     .founders = job.founders,
                                     .number = (uint32_t)strtoul(words[1], NULL, 10),
                                     .listen = words[2],
                                     .join = strcmp(words[3], "-") != 0 ? words[3] : NULL,
                                     .token = (const uint8_t *)token,
                                     .token_bytes = sizeof token - 1,
                                     .equal_shares = true,
                                     .table = job.table,
                                     .n_table = job.n_table,
                                     .flight = job.flight,
                                     .barrier = job.held ? "the method has it so" : NULL,
                                     .ahead = !job.held,
                                     .serial = job.serial,
                                     .check = true,
                                     .commit_ns = commit_ns};
    ru_script_run_result r;
    RU_TRY(ru_script_run(&o, &r, err));
    printf("%lld %lld\n",
           (long long)median_step(commit_ns, r.committed < job.steps ? r.committed : job.steps),
           (long long)ru_clock_cpu_ns());
    return RU_OK;
}

ru_status rui_sums_role(const char *const *words, uint32_t n, ru_err *err)
{
    if (n != 5 || strcmp(words[0], "sums-work") != 0) {
        return RU_FAIL(err, RU_E_USAGE, "'%s' is no role of the benchmark of sums", words[0]);
    }
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_status st = run(words, &arena, err);
    ru_arena_fini(&arena);
    return st;
}
