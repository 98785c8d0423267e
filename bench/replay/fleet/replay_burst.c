/* Burstable machines: buckets of tokens against the providers' figures. */
#include "bench/replay/fleet/replay_burst.h"

#include <math.h>
#include <string.h>

#include "bench/replay/replay_csv.h"
#include "cost/credit.h"

static double apart(double is, double want)
{
    return isinf(is) && isinf(want) ? 0 : fabs(is - want) / fmax(1e-9, fabs(want));
}

/* "inf" is no number of a table. */
static double cell(const rui_csv *c, uint32_t row, uint32_t column)
{
    bool inf = strcmp(rui_csv_text(c, row, column), "inf") == 0;
    return inf ? (double)INFINITY : rui_csv_f64(c, row, column);
}

/* Rules of a type by the table; T2's launch credits stand apart. */
static ru_status type_of(const rui_csv *types, const char *name, uint32_t *vcpus,
                         ru_credit_rules *out, ru_err *err)
{
    for (uint32_t i = 0; i < types->n; i++) {
        if (strcmp(rui_csv_text(types, i, 0), name) == 0) {
            *vcpus = (uint32_t)rui_csv_f64(types, i, 1);
            *out = ru_credit_cpu(*vcpus, rui_csv_f64(types, i, 2), rui_csv_f64(types, i, 3),
                                 rui_csv_f64(types, i, 4), ru_str_starts(ru_str_c(name), "t2."));
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_DATA, "the table of types has no '%s'", name);
}

static ru_status add(ru_replay *r, const char *name, const char *measure, double ours, double goal,
                     ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, measure, true);
    row.ours = ours;
    row.goal = goal;
    return ru_replay_add(r, &row, err);
}

static ru_status depletion(ru_replay *r, ru_err *err)
{
    rui_csv types, csv;
    RU_TRY(rui_csv_read(ru_replay_data(r, "burstable/burst_cpu_credit_table.csv"), r->arena, &types,
                        err));
    RU_TRY(rui_csv_read(ru_replay_data(r, "burstable/burst_cpu_depletion_vectors.csv"), r->arena,
                        &csv, err));
    double minutes = 0, ratio = 0, stepped = 0;
    for (uint32_t i = 0; i < csv.n; i++) {
        ru_credit_rules rules;
        uint32_t vcpus = 0;
        RU_TRY(type_of(&types, rui_csv_text(&csv, i, 0), &vcpus, &rules, err));
        ru_credit c = {.launch = rules.launch, .earned = cell(&csv, i, 1) - rules.launch};
        double use = vcpus * cell(&csv, i, 2) / 60, want = cell(&csv, i, 3);
        double empty = ru_credit_empty_s(&rules, &c, use);
        minutes = fmax(minutes, apart(empty / 60, want));
        ratio = fmax(ratio,
                     apart(empty / ru_credit_empty_s(&rules, &c, rules.burst), cell(&csv, i, 4)));
        /* The same by running second by second until nothing is left. */
        double s = 0;
        while (!isinf(want) && ru_credit_level(&c) > 0 && s < 1e7) {
            (void)ru_credit_run(&rules, &c, use, 1);
            s++;
        }
        stepped = isinf(want) ? stepped : fmax(stepped, fabs(s - ceil(empty)));
    }
    char name[64];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "CPU, minutes to empty of %u given rows", csv.n);
    RU_TRY(add(r, name, "relative_error", minutes, 0.001, err));
    RU_TRY(add(r, "CPU, burst time over that at full speed", "relative_error", ratio, 0.001, err));
    return add(r, "CPU, run second by second against at once", "error_s", stepped, 1, err);
}

static ru_status disks(ru_replay *r, ru_err *err)
{
    rui_csv csv;
    RU_TRY(rui_csv_read(ru_replay_data(r, "burstable/burst_gp2_vectors.csv"), r->arena, &csv, err));
    double burst = 0, refill = 0;
    for (uint32_t i = 0; i < csv.n; i++) {
        ru_credit_rules rules = ru_credit_gp2(cell(&csv, i, 0));
        ru_credit c = ru_credit_launch(&rules);
        burst =
            fmax(burst, fabs(ru_credit_empty_s(&rules, &c, cell(&csv, i, 2)) - cell(&csv, i, 4)));
        c.earned = 0;
        refill = fmax(refill, fabs(ru_credit_refill_s(&rules, &c, 0) - cell(&csv, i, 5)));
    }
    RU_TRY(add(r, "gp2, seconds of burst", "error_s", burst, 0.1, err));
    return add(r, "gp2, seconds to refill", "error_s", refill, 0.1, err);
}

/* B16ms: 480 at the start, 1452 after 6 idle hours, 240 after two more at 1280 %. */
static ru_status day(ru_replay *r, ru_err *err)
{
    ru_credit_rules rules = ru_credit_cpu(16, 162, 3888, 480, false);
    ru_credit c = ru_credit_launch(&rules);
    double worst = fabs(ru_credit_level(&c) - 480);
    (void)ru_credit_run(&rules, &c, 0, 6 * 3600);
    worst = fmax(worst, fabs(ru_credit_level(&c) - 1452));
    (void)ru_credit_run(&rules, &c, 12.8 / 60, 2 * 3600);
    worst = fmax(worst, fabs(ru_credit_level(&c) - 240));
    return add(r, "B16ms, the published day", "error_credits", worst, 1e-6, err);
}

ru_status rui_replay_burst(ru_replay *r, ru_err *err)
{
    if (ru_replay_data(r, "burstable") == NULL) {
        return RU_FAIL(err, RU_E_MISSING,
                       "no folder 'burstable' in the published data; set RUBATO_DATA");
    }
    RU_TRY(depletion(r, err));
    RU_TRY(disks(r, err));
    RU_TRY(day(r, err));
    RU_TRY(rui_burst_model(r, err));
    return rui_burst_fleet(r, err);
}
