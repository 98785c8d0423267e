#include "tool/cluster/fleet.h"

#include <string.h>

#include "base/conf.h"
#include "env/file/file.h"
#include "tool/cluster/settings.h"

enum { PERIODS_MAX = 24 * 366 };

typedef struct fleet_in {
    const char *name, *folder, *start, *spread, *access_log, *metrics, *histogram, *forecast;
    RU_SECTIONS(ru_fleet_type) types;
    uint32_t column, launches;
    double core, clock, headroom, quantile, rate_first;
    int64_t period_ns, grace_ns;
} fleet_in;

static const ru_conf_field type_fields[] = {
    RU_ROW(TEXT, ru_fleet_type, name, NULL, "name of the type"),
    RU_ROW(U32, ru_fleet_type, vcpus, NULL, "number of virtual CPUs", RU_IN(1, 1024)),
    RU_ROW(F64, ru_fleet_type, credits_per_h, NULL,
           "credits (vCPU-minutes) earned in an hour; regular machines: 60 for each vCPU",
           RU_OVER(0, 1e6)),
    RU_ROW(F64, ru_fleet_type, cap, NULL, "most credits that can be saved", RU_OVER(0, 1e9)),
    RU_ROW(F64, ru_fleet_type, launch, "0", "launch credits", RU_IN(0, 1e6)),
    RU_ROW(F64, ru_fleet_type, usd_per_h, NULL, "price of an hour", RU_OVER(0, 1e6)),
    RU_ROW(F64, ru_fleet_type, rate_max, NULL,
           "most requests a second that it serves within the objective at full speed",
           RU_OVER(0, 1e9)),
    RU_ROW(F64, ru_fleet_type, cpu_s, NULL, "seconds of a vCPU that a request takes",
           RU_OVER(0, 1e6)),
};
static const ru_conf_table type_table =
    RU_TABLE("type", ru_fleet_type, type_fields, "a type of machine");

static ru_status check(const void *section, ru_err *err)
{
    const fleet_in *in = section;
    if ((in->access_log[0] != 0) == (in->metrics[0] != 0)) {
        return RU_FAIL(err, RU_E_CONFIG, "give either `access_log` or `metrics`");
    }
    if (in->types.n < 1 || in->types.n > RU_BURST_TYPES_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "`types` has %u entries; expected 1 to %d", in->types.n,
                       RU_BURST_TYPES_MAX);
    }
    for (uint32_t k = 0; k < in->types.n; k++) {
        for (uint32_t i = 0; i < k; i++) {
            if (strcmp(in->types.at[i].name, in->types.at[k].name) == 0) {
                return RU_FAIL(err, RU_E_CONFIG, "type '%s' is named twice", in->types.at[k].name);
            }
        }
    }
    if (in->forecast[0] == 0 && !(in->rate_first > 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "give `forecast`, or `rate_first`, the requests a second to begin with");
    }
    size_t n = strspn(in->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    return n >= 1 && n <= 60 && in->name[n] == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "name '%s': expected 1 to 60 letters, digits, - and _",
                         in->name);
}

static const ru_conf_field fields[] = {
    RU_ROW(TEXT, fleet_in, name, NULL, "name of the fleet, one on this machine"),
    RU_ROW(TEXT, fleet_in, folder, "fleet", "folder of what happened, as seen from this file"),
    RU_ROW(TEXT, fleet_in, start, NULL,
           "command for sh that serves as machine $RUBATO_INSTANCE of type $RUBATO_TYPE, until "
           "SIGTERM"),
    RU_ROW(TEXT, fleet_in, spread, NULL,
           "line for sh that sends requests as the file $RUBATO_FLEET says (number, type, requests "
           "a second), once these machines answer"),
    RU_ROW(TEXT, fleet_in, access_log, "",
           "log with a line for each request, which holds the seconds that it took"),
    RU_ROW(U32, fleet_in, column, "0", "column of the seconds in that log, from 1; 0: the last",
           RU_IN(0, 100)),
    RU_ROW(TEXT, fleet_in, metrics, "", "address of Prometheus figures, in place of a log"),
    RU_ROW(TEXT, fleet_in, histogram, "rubato_serve_request_duration_seconds",
           "name of the histogram of latencies there"),
    RU_ROW(TEXT, fleet_in, forecast, "",
           "file of requests a second, a line for each period, then again from the first; empty: "
           "what the last period had"),
    RU_ROW(F64, fleet_in, rate_first, "0", "requests a second to begin with, without a forecast",
           RU_IN(0, 1e9)),
    RU_ROW(F64, fleet_in, headroom, "0",
           "part by which more requests than expected are planned for", RU_IN(0, 10)),
    RU_ROW(SECTIONS, fleet_in, types, NULL, "types of machines", .table = &type_table),
    RU_ROW(U32, fleet_in, launches, "100", "launches with credits that are possible in all",
           RU_IN(0, 100000)),
    RU_ROW(F64, fleet_in, core, "1", "cores of this machine that a vCPU is", RU_IN(0.01, 1)),
    RU_ROW_AS("period", TIME, fleet_in, period_ns, "3600s", "time between two plans, billed whole",
              RU_IN(1e9, 1e15)),
    RU_ROW_AS("grace", TIME, fleet_in, grace_ns, "10s", "from SIGTERM of a machine to SIGKILL",
              RU_IN(0, 1e12)),
    RU_ROW(F64, fleet_in, quantile, "0.95", "of latencies that is told", RU_IN(0.5, 0.999)),
    RU_ROW(F64, fleet_in, clock, "1", "seconds of the credits' clock in one of ours, for trials",
           RU_IN(0.001, 3600)),
};
static const ru_conf_table table =
    RU_TABLE("fleet", fleet_in, fields, "a service on burstable machines", .check = check);

/* A number on each line. */
static ru_status read_forecast(const char *path, ru_arena *arena, ru_fleet_options *out,
                               ru_err *err)
{
    char *text;
    int64_t n;
    RU_TRY(ru_file_read(path, 1 << 20, arena, &text, &n, err));
    ru_str rest = ru_str_n(text, n), line;
    double *rates = RU_NEW(arena, double, PERIODS_MAX);
    if (rates == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a forecast");
    }
    for (uint32_t at = 1; ru_str_next(&rest, '\n', &line); at++) {
        line = ru_str_trim(line);
        if (line.n == 0) {
            continue;
        }
        if (out->n_forecast == PERIODS_MAX || !ru_str_f64(line, &rates[out->n_forecast]) ||
            !(rates[out->n_forecast] >= 0 && rates[out->n_forecast] <= 1e9)) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "%s:%u: expected requests a second, of at most %d periods", path, at,
                           PERIODS_MAX);
        }
        out->n_forecast++;
    }
    out->forecast = rates;
    return out->n_forecast > 0 ? RU_OK : RU_FAIL(err, RU_E_CONFIG, "%s holds no number", path);
}

ru_status rui_fleet_load(const char *path, ru_arena *arena, ru_fleet_run_options *out, ru_err *err)
{
    rui_settings at;
    fleet_in in;
    RU_TRY(rui_settings_read(path, "fleet", &table, arena, &in, &at, err));
    *out = (ru_fleet_run_options){.name = in.name,
                                  .folder = rui_settings_path(&at, arena, in.folder),
                                  .start = in.start,
                                  .spread = in.spread,
                                  .core = in.core,
                                  .source = {.log = rui_settings_path(&at, arena, in.access_log),
                                             .column = in.column,
                                             .metrics = in.metrics,
                                             .histogram = in.histogram},
                                  .fleet = {.types = in.types.at,
                                            .n_types = in.types.n,
                                            .headroom = in.headroom,
                                            .period_s = 1e-9 * (double)in.period_ns,
                                            .clock = in.clock,
                                            .launches = in.launches,
                                            .rate_first = in.rate_first,
                                            .quantile = in.quantile},
                                  .grace_ns = in.grace_ns};
    const char *forecast = rui_settings_path(&at, arena, in.forecast);
    if (out->folder == NULL || out->source.log == NULL || forecast == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a fleet");
    }
    return forecast[0] != 0 ? read_forecast(forecast, arena, &out->fleet, err) : RU_OK;
}
