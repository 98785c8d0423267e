#include "burst/meter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "env/file/file.h"
#include "env/process/process.h"

static const int64_t tc_ns = 5 * INT64_C(1000000000);

/* -- the bucket ----------------------------------------------------------------------------------
 */

void ru_meter_let(ru_meter *m, double rate)
{
    RU_CHECK(rate > 0);
    m->rate = rate;
    if (m->opt->kind == RU_METER_DISK_OPS) {
        m->io.read_ops_s = m->io.write_ops_s = (int64_t)fmax(rate, 1);
    } else {
        m->io.read_bytes_s = m->io.write_bytes_s = (int64_t)fmax(rate, 1);
    }
}

double ru_meter_used(ru_meter *m, int64_t count)
{
    RU_CHECK(count >= 0);
    double used = m->known && count > m->count ? (double)(count - m->count) : 0;
    m->known = true;
    m->count = count;
    return used;
}

bool ru_meter_step(ru_meter *m, int64_t count, ru_time now)
{
    ru_credit_rules r = m->opt->rules;
    double dt_s = m->known ? 1e-9 * (double)ru_time_since(now, m->last) : 0;
    if (count < 0 || (m->known && dt_s <= 0)) {
        return false;
    }
    m->begun = m->known ? m->begun : now;
    m->last = now;
    double used = ru_meter_used(m, count);
    m->used += used;
    if (dt_s > 0) {
        /* What waited in queues below the counter passes at once. */
        double burst = fmax(r.burst, used / dt_s);
        ru_credit_rules all = r;
        all.burst = burst;
        (void)ru_credit_run(&all, &m->bucket, used / dt_s, dt_s * m->opt->clock);
        double level = ru_credit_level(&m->bucket);
        m->limited = level <= 0 || (m->limited && level < r.burst * dt_s * m->opt->clock * 2);
    }
    double rate = m->limited ? r.earn : r.burst;
    bool other = rate != m->rate;
    ru_meter_let(m, rate);
    return other;
}

void ru_meter_window(ru_meter *m, ru_time now)
{
    double took_s = 1e-9 * (double)ru_time_since(now, m->begun);
    const ru_credit_rules *r = &m->opt->rules;
    m->alarm[0] = 0;
    if (!m->known || took_s <= 0) {
        return;
    }
    m->use = m->used / took_s;
    m->empty_s = ru_credit_empty_s(r, &m->bucket, m->use);
    m->used = 0;
    m->begun = now;
    bool short_of = m->empty_s < m->opt->reserve_s;
    if (short_of && !m->alarmed) {
        (void)snprintf(m->alarm, sizeof m->alarm,
                       "credits of the %s end in %.0f s of the bucket's clock at this use (%.4g of "
                       "%.4g are left); send requests to another machine",
                       m->opt->name, m->empty_s, ru_credit_level(&m->bucket), r->cap);
    }
    double level = ru_credit_level(&m->bucket);
    m->alarmed = short_of || (m->alarmed && level < 0.5 * r->cap);
}

/* -- the kernel ----------------------------------------------------------------------------------
 */

/* Bytes that an interface of this process's network namespace has sent. */
static int64_t sent(const char *text, const char *name)
{
    ru_str rest = ru_str_c(text), line;
    int64_t count = -1;
    const int64_t n = (int64_t)strlen(name);
    while (ru_str_next(&rest, '\n', &line)) {
        line = ru_str_trim(line);
        if (!ru_str_starts(line, name) || line.n <= n || line.p[n] != ':') {
            continue;
        }
        ru_str word;
        line = ru_str_from(line, n + 1);
        for (uint32_t k = 0; k < 9 && ru_str_next(&line, ' ', &word);) { /* the ninth number */
            k += word.n > 0;
            if (k == 9 && !ru_str_i64(word, &count)) {
                count = -1;
            }
        }
    }
    return count;
}

int64_t ru_meter_count(const ru_meter *m, const ru_group *group)
{
    char *text;
    int64_t n, count = -1;
    ru_arena scratch;
    ru_err none;
    if (m->opt->kind != RU_METER_NETWORK) {
        ru_group_figures f;
        ru_group_read_io(group, m->io.major, m->io.minor, &f);
        int64_t in = m->opt->kind == RU_METER_DISK_OPS ? f.read_ops : f.read_bytes;
        int64_t out = m->opt->kind == RU_METER_DISK_OPS ? f.write_ops : f.write_bytes;
        return in >= 0 && out >= 0 ? in + out : -1;
    }
    ru_arena_init(&scratch, 0);
    if (ru_file_read("/proc/self/net/dev", 1 << 20, &scratch, &text, &n, &none) == RU_OK) {
        count = sent(text, m->opt->at);
    }
    ru_arena_fini(&scratch);
    return count;
}

/* Run tc; its first line of output, or of errors when it fails, is in `said`. */
static ru_status tc(const char *const *argv, char *said, size_t cap, ru_err *err)
{
    ru_process *p;
    const char *line = NULL;
    const ru_process_options po = {
        .argv = argv, .pipe_in = true, .pipe_out = true, .pipe_err = true, .own_group = true};
    RU_TRY(ru_process_start(&po, &p, err));
    ru_status st = ru_process_line(p, tc_ns, &line, err);
    (void)snprintf(said, cap, "%s", st == RU_OK && line != NULL ? line : "");
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, tc_ns, &line, err);
    }
    int code = st == RU_OK ? ru_process_wait(p) : -1;
    if (st == RU_OK && code != 0) {
        int64_t n = ru_process_read(p, true, said, (int64_t)cap - 1);
        said[n > 0 ? n : 0] = 0;
        said[strcspn(said, "\n")] = 0;
        st = RU_FAIL(err, RU_E_MISSING, "tc ended with %d: %s", code, said);
    }
    ru_process_close(p);
    return st;
}

/* Of the service's queue, which is how it is known again. */
static void put_handle(const ru_meter_options *o, char into[16])
{
    uint64_t hash = ru_hash_bytes(o->service, (int64_t)strlen(o->service), 1);
    (void)snprintf(into, 16, "%x:", (unsigned)(0x1000 + hash % 0xe000));
}

/* Is the queue ours? *other: it is somebody's, and not the kernel's own. */
static ru_status queue_of(const ru_meter_options *o, bool *ours, bool *other, ru_err *err)
{
    char said[512];
    const char *argv[] = {"tc", "qdisc", "show", "dev", o->at, "root", NULL};
    char handle[16];
    put_handle(o, handle);
    RU_TRY(tc(argv, said, sizeof said, err));
    *ours = strstr(said, handle) != NULL;
    *other = said[0] != 0 && !*ours && strstr(said, " 0: ") == NULL;
    return RU_OK;
}

ru_status ru_meter_set(ru_meter *m, ru_err *err)
{
    char rate[64], burst[64], said[512], handle[16];
    const double bits = 8 * m->rate;
    if (m->opt->kind != RU_METER_NETWORK) {
        return RU_OK;
    }
    put_handle(m->opt, handle);
    /* Ten milliseconds of the rate hide the kernel's timer. What waits must fit into the bucket,
     * also when the rate falls: the kernel never sends a packet that is larger, nor any behind it,
     * and hands down up to 64 KiB as one. A second of the rate may wait before packets are dropped,
     * after which a client would wait for its timeout. */
    (void)snprintf(rate, sizeof rate, "%.0fbit", fmax(bits, 8000));
    (void)snprintf(burst, sizeof burst, "%.0f", fmax(m->rate / 100, 68 << 10));
    const char *argv[] = {"tc",     "qdisc",   "replace", "dev",  m->opt->at, "root",
                          "handle", handle,    "tbf",     "rate", rate,       "burst",
                          burst,    "latency", "1s",      NULL};
    ru_status st = tc(argv, said, sizeof said, err);
    return st == RU_OK
               ? st
               : ru_err_wrap(err, st, "interface %s gets no token bucket (tc, sch_tbf, root)",
                             m->opt->at);
}

void ru_meter_clear(const ru_meter_options *o)
{
    char said[512];
    bool ours = false, other;
    ru_err err;
    const char *argv[] = {"tc", "qdisc", "del", "dev", o->at, "root", NULL};
    if (o->kind != RU_METER_NETWORK || queue_of(o, &ours, &other, &err) != RU_OK || !ours) {
        return;
    }
    if (tc(argv, said, sizeof said, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "burst", "network", "%s keeps its limit: %s", o->at, err.text);
    }
}

/* The whole disk below a path: the kernel bounds no part of one. */
static ru_status find_device(ru_meter *m, ru_arena *arena, ru_err *err)
{
    struct stat is;
    char *text;
    int64_t n, major_number, minor_number;
    if (stat(m->opt->at, &is) != 0) {
        return RU_FAIL(err, RU_E_MISSING, "disk.path: there is no %s", m->opt->at);
    }
    dev_t d = S_ISBLK(is.st_mode) ? is.st_rdev : is.st_dev;
    m->io.major = major(d);
    m->io.minor = minor(d);
    const char *at = ru_arena_printf(arena, "/sys/dev/block/%u:%u", m->io.major, m->io.minor);
    const char *part = at != NULL ? ru_path_join(arena, at, "partition") : NULL;
    const char *whole = at != NULL ? ru_path_join(arena, at, "../dev") : NULL;
    if (part == NULL || whole == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a disk");
    }
    if (!ru_path_exists(at)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "disk.path: %s lies on no block device of this machine (%u:%u)", m->opt->at,
                       m->io.major, m->io.minor);
    }
    if (!ru_path_exists(part)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(whole, 64, arena, &text, &n, err));
    ru_str rest = ru_str_trim(ru_str_n(text, n)), word;
    if (!ru_str_next(&rest, ':', &word) || !ru_str_i64(word, &major_number) ||
        !ru_str_i64(rest, &minor_number)) {
        return RU_FAIL(err, RU_E_DATA, "%s names no device", whole);
    }
    m->io.major = (uint32_t)major_number;
    m->io.minor = (uint32_t)minor_number;
    return RU_OK;
}

ru_status ru_meter_open(ru_meter *m, const ru_meter_options *o, ru_arena *arena, ru_err *err)
{
    *m = (ru_meter){.opt = o, .bucket = {.earned = o->level}, .empty_s = (double)INFINITY};
    bool ours, other;
    if (o->kind == RU_METER_NONE) {
        return RU_OK;
    }
    if (!(o->rules.earn > 0) || o->rules.earn >= o->rules.burst || !(o->rules.cap > 0) ||
        o->level > o->rules.cap) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "%s: expected 0 < earn < burst, 0 < cap and level <= cap; got earn %.6g, burst %.6g, "
            "level %.6g, cap %.6g",
            o->name, o->rules.earn, o->rules.burst, o->level, o->rules.cap);
    }
    if (o->kind != RU_METER_NETWORK) {
        return find_device(m, arena, err);
    }
    if (ru_meter_count(m, NULL) < 0) {
        return RU_FAIL(err, RU_E_MISSING, "network.interface: this machine has no interface '%s'",
                       o->at);
    }
    ru_status st = queue_of(o, &ours, &other, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "interface %s is bounded by tc of iproute2", o->at);
    }
    return !other ? RU_OK
                  : RU_FAIL(err, RU_E_AGAIN,
                            "interface %s has a queue that somebody set up; it would be replaced: "
                            "remove it (tc qdisc del dev %s root), or leave `network` out",
                            o->at, o->at);
}
