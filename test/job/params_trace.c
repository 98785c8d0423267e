/* A day on a market of machines, 600 times as fast: params-trace [HOURS [MACHINES]].
 *
 * One reliable machine, and on each of eight markets an allocation of some machines at a bid just
 * above the price. A price above the bid takes all of an allocation away at once, with a notice of
 * two minutes; every third time the notice is lost, and the machines fall silent. Ten minutes later
 * an allocation of new machines begins at the price of then. The tables at the end are those of one
 * loop, bit for bit. Without RUBATO_DATA: exit code 77.
 *
 * Source: prices of 2016 in $RUBATO_DATA/spot-prices. */
#include <stdio.h>
#include <stdlib.h>

#include "base/conf.h"
#include "base/str.h"
#include "cost/evict.h"
#include "env/file/file.h"
#include "lab/worlds/params_world.h"

enum { MARKETS = 8, SPEED = 600, EVENTS_MAX = 1024, NOTICE_S = 120, AGAIN_S = 600 };
#define BEGIN_S INT64_C(1460000000) /* within the history of all */
#define OVER    0.002               /* a bid over the price, in dollars */

static const char *const markets[MARKETS] = {"cr1.8xlarge_us-east-1a", "d2.2xlarge_us-east-1a",
                                             "d2.2xlarge_us-east-1c",  "m3.large_us-east-1a",
                                             "m4.4xlarge_us-east-1b",  "r3.large_us-east-1c",
                                             "m4.10xlarge_us-east-1c", "g2.8xlarge_us-east-1a"};

typedef struct plan {
    ru_params_event at[EVENTS_MAX];
    uint32_t n, machines, evicted, silent;
} plan;

static ru_status read_prices(const char *path, ru_arena *a, ru_prices *out, ru_err *err)
{
    char *text;
    int64_t size;
    RU_TRY(ru_file_read(path, 0, a, &text, &size, err));
    int64_t *at_s = RU_NEW(a, int64_t, size / 4 + 1);
    double *usd = RU_NEW(a, double, size / 4 + 1);
    ru_str all = ru_str_n(text, size), line, word;
    uint32_t n = 0;
    while (ru_str_next(&all, '\n', &line) && line.n > 0) {
        if (!ru_str_next(&line, ' ', &word) || !ru_str_i64(word, &at_s[n]) ||
            !ru_str_f64(ru_str_trim(line), &usd[n])) {
            return RU_FAIL(err, RU_E_DATA, "%s:%u: no time and price", path, n + 1);
        }
        n++;
    }
    *out = (ru_prices){at_s, usd, n};
    return ru_prices_check(out, err);
}

static void happens(plan *p, int64_t s, ru_params_what what, uint32_t first, uint32_t n)
{
    RU_CHECK(p->n < EVENTS_MAX);
    p->at[p->n++] = (ru_params_event){
        .ns = 300000000 + s * (1000000000 / SPEED), .what = what, .first = first, .n = n};
}

/* Allocations of one market, one after another. */
static void follow(const ru_prices *prices, int64_t seconds, uint32_t each, plan *p)
{
    for (int64_t s = 0; s < seconds;) {
        uint32_t row = ru_prices_row(prices, BEGIN_S + s);
        RU_CHECK(row != UINT32_MAX);
        double bid = prices->usd[row] + OVER;
        uint32_t first = p->machines;
        p->machines += each;
        happens(p, s, RU_PARAMS_JOIN, first, each);
        while (row < prices->n && prices->usd[row] <= bid) {
            row++;
        }
        int64_t end = row < prices->n ? prices->at_s[row] - BEGIN_S : seconds;
        end = end < s + 60 ? s + 60 : end;
        if (end >= seconds) {
            return;
        }
        p->evicted++;
        if (p->evicted % 3 == 0) {
            p->silent++;
            happens(p, end, RU_PARAMS_VANISH, first, each);
        } else {
            int64_t notice = end - NOTICE_S > s ? end - NOTICE_S : s;
            happens(p, notice, RU_PARAMS_LEAVE, first, each);
            happens(p, end, RU_PARAMS_VANISH, first, each);
        }
        s = end + AGAIN_S;
    }
}

static ru_status make(const char *data, int64_t seconds, uint32_t each, plan *p, ru_err *err)
{
    ru_arena a;
    ru_status st = RU_OK;
    ru_arena_init(&a, 0);
    for (uint32_t k = 0; k < MARKETS && st == RU_OK; k++) {
        ru_prices prices;
        const char *path = ru_arena_printf(&a, "%s/spot-prices/2016/%s.txt", data, markets[k]);
        st = read_prices(path, &a, &prices, err);
        if (st == RU_OK) {
            follow(&prices, seconds, each, p);
        }
    }
    ru_arena_fini(&a);
    return st;
}

int main(int argc, char **argv)
{
    static plan p;
    const char *data = ru_conf_env("RUBATO_DATA");
    int64_t seconds = (argc > 1 ? strtoll(argv[1], NULL, 10) : 24) * 3600;
    uint32_t each = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 2;
    ru_err err = {0};
    if (data == NULL) {
        (void)printf("skipped: RUBATO_DATA names no folder with spot-prices\n");
        return 77;
    }
    p.machines = 1;
    if (make(data, seconds, each, &p, &err) != RU_OK) {
        (void)printf("%s\n", err.text);
        return 1;
    }
    int64_t task_ns = 150000000;
    const ru_params_job job = {.seed = 2016,
                               .founders = 1,
                               .later = p.machines - 1,
                               .reliable = 1,
                               .executors = 24,
                               .shards = 16,
                               .rule = RU_APP_ADAGRAD,
                               .clocks = (uint32_t)(seconds * (1000000000 / SPEED) / task_ns / 2),
                               .task_ns = task_ns,
                               .stages = RU_ENGINE_STAGES + RU_STAGE_TWO,
                               .event = p.at,
                               .n_events = p.n,
                               .limit_ns = 2 * seconds * (1000000000 / SPEED) + 10000000000};
    ru_params_result r;
    if (ru_params_run(&job, &r, &err) != RU_OK || r.status != RU_OK || !r.ended) {
        (void)printf("%s%s%s\n", err.text, r.text, r.ended ? "" : "; it did not end");
        return 1;
    }
    (void)printf("%lld hours, %u machines, %u evictions of %u each, %u of them without notice\n",
                 (long long)seconds / 3600, p.machines, p.evicted, each, p.silent);
    (void)printf("%u clocks in %.1f s; %u generations from copies with %u clocks back, %u from the "
                 "disk; longest time between two clocks %.2f s, and until work goes on after a "
                 "loss %.2f s\n",
                 job.clocks, 1e-9 * (double)r.virtual_ns, r.from_copies, r.clocks_back, r.from_disk,
                 1e-9 * (double)r.gap_ns, 1e-9 * (double)r.idle_ns);
    ru_params_result_fini(&r);
    if (ru_params_check(&job, &err) != RU_OK) {
        (void)printf("%s\n", err.text);
        return 1;
    }
    (void)printf("the tables are those of one loop\n");
    return 0;
}
