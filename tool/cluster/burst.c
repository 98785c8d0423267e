#include "tool/cluster/burst.h"

#include <math.h>
#include <string.h>

#include "base/conf.h"
#include "tool/cluster/settings.h"

typedef struct cpu_in {
    double cores, credits_per_hour, cap, level, launch;
} cpu_in;

typedef struct meter_in { /* of a disk or a network */
    const char *at;
    uint32_t count; /* 0: bytes, 1: operations */
    int64_t earn_bytes, burst_bytes, cap_bytes, level_bytes;
    double earn, burst, cap, level;
} meter_in;

typedef struct profile_in {
    const char *load;
    ru_conf_i64s clients;
} profile_in;

typedef struct burst_in {
    const char *name, *folder, *pid_file, *access_log, *metrics, *histogram;
    uint32_t column, speed; /* speed: 0 cpu, 1 disk, 2 network, 3 all */
    cpu_in cpu;
    meter_in disk, network;
    profile_in profile;
    double quantile, margin, gain_min, speed_min, clock;
    int64_t slo_ns, think_ns, window_ns, reserve_ns;
} burst_in;

static const ru_conf_field cpu_fields[] = {
    RU_ROW(F64, cpu_in, cores, "0", "cores at full speed", RU_IN(0, 1024)),
    RU_ROW(F64, cpu_in, credits_per_hour, "0",
           "credits earned in an hour; one is a core for a minute", RU_IN(0, 1e6)),
    RU_ROW(F64, cpu_in, cap, "0", "most credits that can be saved", RU_IN(0, 1e9)),
    RU_ROW(F64, cpu_in, level, "0", "credits at the first start", RU_IN(0, 1e9)),
    RU_ROW(F64, cpu_in, launch, "0",
           "launch credits at the first start; they do not count towards cap and are spent first",
           RU_IN(0, 1e9)),
};
static const ru_conf_table cpu_table = RU_TABLE("cpu", cpu_in, cpu_fields, "processor credits");

#define BYTES_ROWS                                                                        \
    RU_ROW_AS("earn", SIZE, meter_in, earn_bytes, "0B", "bytes earned in a second",       \
              RU_IN(0, 1e15)),                                                            \
        RU_ROW_AS("burst", SIZE, meter_in, burst_bytes, "0B",                             \
                  "most bytes in a second, while there are any left", RU_IN(0, 1e15)),    \
        RU_ROW_AS("cap", SIZE, meter_in, cap_bytes, "0B", "most bytes that can be saved", \
                  RU_IN(0, 1e18)),                                                        \
        RU_ROW_AS("level", SIZE, meter_in, level_bytes, "0B", "bytes at the first start", \
                  RU_IN(0, 1e18))

static const ru_conf_field network_fields[] = {
    RU_ROW_AS("interface", TEXT, meter_in, at, "", "network interface; empty: no bucket"),
    BYTES_ROWS,
};
static const ru_conf_table network_table = RU_TABLE(
    "network", meter_in, network_fields, "credits of a network card, by the bytes that it sends");

static const ru_conf_field disk_fields[] = {
    RU_ROW_AS("path", TEXT, meter_in, at, "",
              "a path on the disk, or its device; empty: no bucket"),
    BYTES_ROWS,
    RU_ROW_AS("ops_earn", F64, meter_in, earn, "0",
              "operations earned in a second, in place of bytes: 3 for each GiB of AWS's gp2, at "
              "least 100",
              RU_IN(0, 1e9)),
    RU_ROW_AS("ops_burst", F64, meter_in, burst, "3000", "most operations in a second",
              RU_IN(0, 1e9)),
    RU_ROW_AS("ops_cap", F64, meter_in, cap, "5400000", "most operations that can be saved",
              RU_IN(0, 1e12)),
    RU_ROW_AS("ops_level", F64, meter_in, level, "5400000", "operations at the first start",
              RU_IN(0, 1e12)),
};
static const ru_conf_table disk_table = RU_TABLE(
    "disk", meter_in, disk_fields, "credits of a disk, by what the service reads and writes there");

static const ru_conf_field profile_fields[] = {
    RU_ROW(
        TEXT, profile_in, load, "",
        "one command for sh that sends requests of $CLIENTS clients for $DURATION seconds; empty: "
        "the profile takes the load as it comes"),
    RU_ROW(I64_LIST, profile_in, clients, "[]", "three rising numbers of clients, with `load`",
           RU_IN(1, RU_BURST_CLIENTS_MAX)),
};
static const ru_conf_table profile_table =
    RU_TABLE("profile", profile_in, profile_fields, "what the latency model is fitted to first");

enum { ALL = 3 };
static const char *const speeds[] = {"cpu", "disk", "network", "all"};

static ru_status check_meter(const meter_in *m, const char *name, const char *at, ru_err *err)
{
    bool bytes = m->earn_bytes > 0 || m->burst_bytes > 0 || m->cap_bytes > 0 || m->level_bytes > 0;
    if (m->at[0] == 0 && (bytes || m->earn > 0)) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: give `%s`, too", name, at);
    }
    return !bytes || !(m->earn > 0)
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "%s: give bytes (`earn`) or operations (`ops_earn`), not both", name);
}

/* The resources whose speeds are chosen are given, and the processor only then. */
static ru_status check_speed(const burst_in *in, ru_err *err)
{
    const cpu_in *c = &in->cpu;
    const meter_in *const meters[] = {&in->disk, &in->network};
    bool any = c->cores > 0 || c->credits_per_hour > 0 || c->cap > 0;
    bool cpu = in->speed == 0 || (in->speed == ALL && any);
    bool meter = in->disk.at[0] != 0 || in->network.at[0] != 0;
    if (cpu && !(c->cores >= 0.01 && c->credits_per_hour > 0 && c->cap > 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "cpu: give `cores` of 0.01 or more, `credits_per_hour` and `cap` above 0, "
                       "or write `speed: disk` or `speed: network`");
    }
    if (!cpu && any) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "speed: %s chooses the rate of the %s; leave `cpu` out, whose credits are "
                       "not kept beside it",
                       speeds[in->speed], speeds[in->speed]);
    }
    return cpu || (in->speed == ALL ? meter : meters[in->speed - 1]->at[0] != 0)
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "speed: %s needs the section `%s`", speeds[in->speed],
                         in->speed == ALL ? "cpu`, `disk` or `network" : speeds[in->speed]);
}

static ru_status check(const void *section, ru_err *err)
{
    const burst_in *in = section;
    bool loads = in->profile.load[0] != 0;
    if ((in->access_log[0] != 0) == (in->metrics[0] != 0)) {
        return RU_FAIL(err, RU_E_CONFIG, "give either `access_log` or `metrics`");
    }
    if (in->profile.clients.n != (loads ? RU_PACE_LOADS : 0)) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "profile.clients has %u numbers; expected %d with profile.load, none without",
            in->profile.clients.n, RU_PACE_LOADS);
    }
    RU_TRY(check_meter(&in->disk, "disk", "path", err));
    RU_TRY(check_meter(&in->network, "network", "interface", err));
    RU_TRY(check_speed(in, err));
    size_t n = strspn(in->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    return n >= 1 && n <= 60 && in->name[n] == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "name '%s': expected 1 to 60 letters, digits, - and _",
                         in->name);
}

static const ru_conf_field fields[] = {
    RU_ROW(TEXT, burst_in, name, NULL, "name of the service, one on this machine"),
    RU_ROW(TEXT, burst_in, folder, "burst", "folder of what happened, as seen from this file"),
    RU_ROW(TEXT, burst_in, pid_file, NULL,
           "file with the number of the service's first process; all that came from it counts"),
    RU_ROW(TEXT, burst_in, access_log, "",
           "log with a line for each request, which holds the seconds that it took"),
    RU_ROW(U32, burst_in, column, "0", "column of the seconds in that log, from 1; 0: the last",
           RU_IN(0, 100)),
    RU_ROW(TEXT, burst_in, metrics, "", "address of Prometheus figures, in place of a log"),
    RU_ROW(TEXT, burst_in, histogram, "rubato_serve_request_duration_seconds",
           "name of the histogram of latencies there"),
    RU_ROW(CHOICE, burst_in, speed, "cpu",
           "of what the speed is chosen; others are bounded alone. all: of all that are given, "
           "together",
           .choices = "cpu|disk|network|all"),
    RU_ROW(SECTION, burst_in, cpu, NULL, "processor credits", .table = &cpu_table),
    RU_ROW(SECTION, burst_in, disk, NULL, "credits of a disk", .table = &disk_table),
    RU_ROW(SECTION, burst_in, network, NULL, "credits of a network card", .table = &network_table),
    RU_ROW(SECTION, burst_in, profile, NULL, "what the latency model is fitted to first",
           .table = &profile_table),
    RU_ROW_AS("slo", TIME, burst_in, slo_ns, NULL, "the quantile of latency must not exceed it",
              RU_IN(1e5, 1e12)),
    RU_ROW(F64, burst_in, quantile, "0.95", "fraction of requests that must meet slo",
           RU_IN(0.5, 0.999)),
    RU_ROW(F64, burst_in, margin, "0.1", "safety margin, as a fraction of slo", RU_IN(0, 0.9)),
    RU_ROW(F64, burst_in, gain_min, "0.02", "smallest fraction of credits worth throttling for",
           RU_IN(0, 1)),
    RU_ROW(F64, burst_in, speed_min, "0.2", "lowest speed, as a fraction of full speed",
           RU_IN(0.05, 0.95)),
    RU_ROW_AS("think", TIME, burst_in, think_ns, "0s",
              "time from an answer to the next request of a client; measured with profile.load",
              RU_IN(0, 1e12)),
    RU_ROW_AS("window", TIME, burst_in, window_ns, "60s", "time between two decisions",
              RU_IN(1e9, 3600e9)),
    RU_ROW_AS("reserve", TIME, burst_in, reserve_ns, "600s",
              "alarm when the credits last less than this, on the credits' clock", RU_IN(0, 1e15)),
    RU_ROW(F64, burst_in, clock, "1", "seconds of the credits' clock in one of ours, for trials",
           RU_IN(0.001, 3600)),
};
static const ru_conf_table table =
    RU_TABLE("service", burst_in, fields, "a service with processor credits", .check = check);

static void put_pace(const burst_in *in, ru_pace_options *out)
{
    *out = (ru_pace_options){.clock = in->clock,
                             .slo_s = 1e-9 * (double)in->slo_ns,
                             .quantile = in->quantile,
                             .margin = in->margin,
                             .gain_min = in->gain_min,
                             .reserve_s = 1e-9 * (double)in->reserve_ns,
                             .speed_min = in->speed_min,
                             .think_s = 1e-9 * (double)in->think_ns,
                             .window_ns = in->window_ns};
    for (uint32_t k = 0; k < in->profile.clients.n; k++) {
        out->clients[k] = (uint32_t)in->profile.clients.at[k];
    }
}

static void put_meter(const burst_in *in, const meter_in *m, const char *name, ru_meter_kind kind,
                      ru_meter_options *out)
{
    bool ops = kind == RU_METER_DISK_BYTES && m->earn > 0;
    *out = (ru_meter_options){.kind = m->at[0] == 0 ? RU_METER_NONE
                                      : ops         ? RU_METER_DISK_OPS
                                                    : kind,
                              .name = name,
                              .service = in->name,
                              .at = m->at,
                              .rules = {.earn = ops ? m->earn : (double)m->earn_bytes,
                                        .burst = ops ? m->burst : (double)m->burst_bytes,
                                        .cap = ops ? m->cap : (double)m->cap_bytes},
                              .level = ops ? m->level : (double)m->level_bytes,
                              .clock = in->clock,
                              .reserve_s = 1e-9 * (double)in->reserve_ns};
}

/* Those whose speeds are chosen. */
static void put_paced(const burst_in *in, ru_burst_options *out)
{
    ru_pace_options *p = &out->pace;
    if (in->speed == 0 || (in->speed == ALL && in->cpu.cores > 0)) {
        p->at[p->n++] =
            (ru_pace_resource){.name = speeds[0],
                               .rules = {.earn = in->cpu.credits_per_hour / 3600,
                                         .cap = in->cpu.cap,
                                         .burst = in->cpu.cores / 60},
                               .begin = {.earned = in->cpu.level, .launch = in->cpu.launch},
                               .servers = (uint32_t)fmax(1, ceil(in->cpu.cores)),
                               .rate_min = 0.002 / 60};
    }
    for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
        const ru_meter_options *m = &out->meters[k];
        if (in->speed == k + 1 || (in->speed == ALL && m->kind != RU_METER_NONE)) {
            out->paced[p->n] = k + 1;
            p->at[p->n++] = (ru_pace_resource){.name = m->name,
                                               .rules = m->rules,
                                               .begin = {.earned = m->level},
                                               .servers = 1,
                                               .rate_min = 1};
        }
    }
}

ru_status rui_burst_load(const char *path, ru_arena *arena, ru_burst_options *out, ru_err *err)
{
    rui_settings at;
    burst_in in;
    RU_TRY(rui_settings_read(path, "service", &table, arena, &in, &at, err));
    const char **guard = RU_NEW(arena, const char *, 6);
    if (guard == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a service");
    }
    guard[0] = "/proc/self/exe";
    guard[1] = "cluster";
    guard[2] = "burst";
    guard[3] = at.file;
    guard[4] = "--guard";
    *out = (ru_burst_options){.name = in.name,
                              .folder = rui_settings_path(&at, arena, in.folder),
                              .pid_file = rui_settings_path(&at, arena, in.pid_file),
                              .load = in.profile.load,
                              .source = {.log = rui_settings_path(&at, arena, in.access_log),
                                         .column = in.column,
                                         .metrics = in.metrics,
                                         .histogram = in.histogram},
                              .guard = guard};
    put_pace(&in, &out->pace);
    in.disk.at = rui_settings_path(&at, arena, in.disk.at);
    if (in.disk.at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a service");
    }
    put_meter(&in, &in.disk, "disk", RU_METER_DISK_BYTES, &out->meters[0]);
    put_meter(&in, &in.network, "network", RU_METER_NETWORK, &out->meters[1]);
    put_paced(&in, out);
    return out->folder != NULL && out->pid_file != NULL && out->source.log != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for a service");
}
