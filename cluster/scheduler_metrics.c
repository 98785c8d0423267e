/* Figures of a cluster in Prometheus' text format 0.0.4: GET /metrics with any key of the cluster.
 */
#include "cluster/scheduler_impl.h"

static void put_head(ru_text *t, const char *name, const char *type, const char *help)
{
    ru_text_putf(t, "# HELP rubato_cluster_%s %s\n# TYPE rubato_cluster_%s %s\n", name, help, name,
                 type);
}

static void put_one(ru_text *t, const char *name, const char *type, const char *help, double value)
{
    put_head(t, name, type, help);
    ru_text_putf(t, "rubato_cluster_%s %.17g\n", name, value);
}

static void put_jobs(const rui_scheduler *s, ru_text *t)
{
    uint32_t n[RU_BOOK_STATES] = {0};
    for (uint32_t k = 1; k <= s->book.jobs.n; k++) {
        n[ru_book_job_at(&s->book, k)->state]++;
    }
    put_head(t, "jobs", "gauge", "Jobs by state, those that ended as well.");
    for (uint32_t k = RU_BOOK_WAITS; k < RU_BOOK_STATES; k++) {
        ru_text_putf(t, "rubato_cluster_jobs{state=\"%s\"} %u\n",
                     ru_book_state_name((ru_book_state)k), n[k]);
    }
}

/* Names of nodes need no escapes (tool/cluster/nodes.c). */
static void put_nodes(const rui_scheduler *s, ru_text *t)
{
    static const struct {
        const char *name, *help;
    } of[] = {{"node_up", "1: its agent is connected."},
              {"node_slots", "Workers that may run at one time."},
              {"node_granted_slots", "Slots that jobs were given."},
              {"node_processes", "Workers that live."}};
    for (uint32_t f = 0; f < RU_ARRAY_LEN(of); f++) {
        put_head(t, of[f].name, "gauge", of[f].help);
        for (uint32_t k = 0; k < s->book.n_nodes; k++) {
            uint32_t alive = 0;
            for (uint32_t i = 0; i < s->live[k].state.n; i++) {
                alive += s->live[k].state.procs[i].alive;
            }
            const uint32_t values[] = {s->live[k].guest.v != 0, s->book.nodes[k].slots,
                                       s->book.sched.nodes[k].used, alive};
            ru_text_putf(t, "rubato_cluster_%s{node=\"%s\"} %u\n", of[f].name,
                         s->book.nodes[k].name, values[f]);
        }
    }
}

static double value_of(const ru_cluster_figures *f, const ru_book_job *j, uint32_t which)
{
    const double values[] = {f->workers,       (double)f->step, f->loss,
                             f->samples_per_s, f->noise,        j->generation};
    return values[which];
}

static void put_running(rui_scheduler *s, ru_text *t)
{
    static const struct {
        const char *name, *type, *help;
    } of[] = {{"job_workers", "gauge", "Workers of a job that runs."},
              {"job_steps_total", "counter", "Training steps done."},
              {"job_loss", "gauge", "Loss of the last step."},
              {"job_samples_per_second", "gauge", "Samples a second."},
              {"job_gradient_noise_samples", "gauge", "Gradient noise scale; 0: not measured."},
              {"job_starts_total", "counter", "Times that the job was started."}};
    for (uint32_t f = 0; f < RU_ARRAY_LEN(of); f++) {
        put_head(t, of[f].name, of[f].type, of[f].help);
        for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
            const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
            if (j != NULL && j->state == RU_BOOK_RUNS) {
                const ru_cluster_figures *x = /* its files are read once */
                    f == 0 ? rui_scheduler_figures(s, j) : &s->figures[slot].is;
                ru_text_putf(t, "rubato_cluster_%s{job=\"%u\"} %.17g\n", of[f].name,
                             s->book.of[slot], value_of(x, j, f));
            }
        }
    }
}

void rui_scheduler_metrics(rui_scheduler *s, ru_text *t)
{
    put_one(t, "events_total", "counter", "Events in the journal.", (double)s->book.seq);
    put_one(t, "pause_seconds", "gauge",
            "What a change of its workers costs a job, measured; 0: nobody told.", s->book.pause_s);
    put_jobs(s, t);
    put_nodes(s, t);
    put_running(s, t);
}
