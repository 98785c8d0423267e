#include "cost/backup.h"

#include <math.h>

#include "base/rng.h"

#define STRETCH 1.01

double ru_backup_delta_bytes(const ru_backup_job *j, uint32_t workers, uint32_t clocks)
{
    double untouched = 1 - j->touched;
    if (untouched <= 1e-12) {
        return j->model_bytes;
    }
    double n = (double)workers * clocks;
    return j->model_bytes * (1 - ru_math_exp(fmax(n * ru_math_log(untouched), -700)));
}

/* One phase: every worker exchanges `bytes` with the servers, evenly. */
static double phase_s(const ru_backup_job *j, const ru_backup_layout *l, double bytes)
{
    double each = bytes / l->servers;
    /* A server that is a worker too has its own part at hand. */
    bool all_shared = l->shared == l->servers;
    double server = each * (l->workers - (all_shared ? 1 : 0)) / j->link_bytes_per_s;
    bool none_apart = l->shared == l->workers;
    double worker = (bytes - (none_apart ? each : 0)) / j->link_bytes_per_s;
    double serve = each * l->workers / j->serve_bytes_per_s;
    return fmax(fmax(server, worker), serve);
}

/* The clock that the links allow with a stream of so many bytes a clock. */
static double links_s(const ru_backup_job *j, const ru_backup_layout *l, double stream)
{
    double each = j->read_bytes / l->servers, part = l->shared > 0 ? 1 : 0;
    double out = each * (l->workers - part) + part * j->write_bytes + stream / l->servers;
    double in = stream / l->backups + (l->backups_work ? j->read_bytes : 0);
    return fmax(out, in) / j->link_bytes_per_s;
}

/* A worker that reads beside the stream of its machine's copies waits for what of the stream comes
 * in front of its last answer: the part of read_s that the stream, spread over the clock, takes of
 * the link. clock = bytes / rate + stream_s / clock * read_s + compute + write: a quadratic. */
static double with_stream(const ru_backup_job *j, const ru_backup_layout *l,
                          const ru_backup_clock *c, double phases, double stream)
{
    double low = fmax(phases, links_s(j, l, stream));
    if (!l->backups_work) {
        return low;
    }
    double rest = j->read_bytes / j->link_bytes_per_s + c->compute_s + c->write_s;
    double stream_s = stream / l->backups / j->link_bytes_per_s;
    return fmax(low, 0.5 * (rest + sqrt(rest * rest + 4 * stream_s * c->read_s)));
}

ru_backup_clock ru_backup_clock_of(const ru_backup_job *j, const ru_backup_layout *l)
{
    ru_backup_clock c = {.read_s = phase_s(j, l, j->read_bytes),
                         .write_s = phase_s(j, l, j->write_bytes),
                         .compute_s = j->work_s / l->workers,
                         .batch = 1};
    double phases = c.read_s + c.write_s + c.compute_s;
    c.clock_s = phases;
    if (l->backups == 0) {
        return c;
    }
    uint32_t most = j->clocks_max > 1 ? j->clocks_max : 1;
    for (uint32_t b = 1;; b = 2 * b < most ? 2 * b : most) {
        c.batch = b;
        c.stream_bytes = ru_backup_delta_bytes(j, l->workers, b) / b;
        c.clock_s = with_stream(j, l, &c, phases, c.stream_bytes);
        if (c.clock_s <= STRETCH * phases || b >= most) {
            break;
        }
    }
    double transfer = c.batch * c.stream_bytes / l->backups / j->link_bytes_per_s;
    c.behind_s = c.batch * c.clock_s + transfer;
    return c;
}
