/* The world file of a run: the machine, the job, what was measured and what was decided. */
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "comm/member/member.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "run/ckpt_form.h"
#include "store/world_file.h"
#include "train/driver/op_facts.h"
#include "train/driver/trainer_impl.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for the world file of the run");
}

/* Members name their machine "name/hash": people know it by its name. */
static const char *host_name(ru_arena *arena, const char *text)
{
    return ru_arena_strn(arena, text, (int64_t)strcspn(text, "/"));
}

static ru_status put_alone(const rui_trainer *t, ru_arena *arena, ru_world *w, ru_err *err)
{
    char name[256];
    ru_self_host(name, sizeof name);
    ru_cluster_host *host = RU_NEW(arena, ru_cluster_host, 1);
    ru_cluster_device *device = RU_NEW(arena, ru_cluster_device, 1);
    if (host == NULL || device == NULL) {
        return full(err);
    }
    host->name = ru_arena_str(arena, name[0] != '\0' ? name : "localhost");
    *device = (ru_cluster_device){
        .name = "cpu",
        .host = host->name,
        .type = "cpu",
        .votes = true,
        .availability = 1,
        .cores = t->job->train.threads > 0 ? (uint32_t)t->job->train.threads : t->cores};
    w->cluster.hosts.at = host;
    w->cluster.hosts.n = 1;
    w->cluster.devices.at = device;
    w->cluster.devices.n = 1;
    return host->name != NULL ? RU_OK : full(err);
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "/");
    return n == strcspn(b, "/") && memcmp(a, b, n) == 0;
}

/* Machines in the order of their oldest worker, a device for each worker. */
static ru_status put_crew(const rui_trainer *t, ru_arena *arena, ru_world *w, ru_err *err)
{
    ru_cluster_host *hosts = RU_NEW(arena, ru_cluster_host, t->n_crew);
    ru_cluster_device *devices = RU_NEW(arena, ru_cluster_device, t->n_crew);
    const ru_member_info **first = RU_NEW(arena, const ru_member_info *, t->n_crew);
    if (hosts == NULL || devices == NULL || first == NULL) {
        return full(err);
    }
    uint32_t n = 0;
    for (uint32_t k = 0; k < t->n_crew; k++) {
        const ru_member_info *m = &t->crew[k];
        uint32_t h = 0;
        bool named = false;
        for (; h < n && strcmp(first[h]->host, m->host) != 0; h++) {
            named = named || same_name(first[h]->host, m->host);
        }
        if (h == n) { /* two machines of one name keep what distinguishes them */
            const char *name = named ? ru_arena_str(arena, m->host) : host_name(arena, m->host);
            hosts[n] = (ru_cluster_host){.name = name,
                                         .tier = m->tier == RU_TIER_TRANSIENT ? RU_HOST_TRANSIENT
                                                                              : RU_HOST_RELIABLE};
            first[n++] = m;
        }
        const char *name = ru_arena_printf(arena, "worker %u", m->number);
        if (name == NULL || hosts[h].name == NULL) {
            return full(err);
        }
        devices[k] = (ru_cluster_device){.name = name,
                                         .host = hosts[h].name,
                                         .type = "cpu",
                                         .cores = m->capacity,
                                         .votes = !m->no_vote,
                                         .availability = 1};
    }
    w->cluster.hosts.at = hosts;
    w->cluster.hosts.n = n;
    w->cluster.devices.at = devices;
    w->cluster.devices.n = t->n_crew;
    return RU_OK;
}

/* What this process knows of its own machine. */
ru_status rui_trainer_cluster(const rui_trainer *t, ru_arena *arena, ru_world *w, ru_err *err)
{
    char cpu[256];
    ru_self_cpu(cpu, sizeof cpu);
    RU_TRY(t->n_crew > 0 ? put_crew(t, arena, w, err) : put_alone(t, arena, w, err));
    ru_cluster_host *hosts = RU_NEW(arena, ru_cluster_host, w->cluster.hosts.n);
    const char *mine = t->crew_self < w->cluster.devices.n
                           ? w->cluster.devices.at[t->crew_self].host
                           : w->cluster.hosts.at[0].name;
    if (hosts == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < w->cluster.hosts.n; k++) {
        ru_cluster_host *h = &hosts[k];
        *h = w->cluster.hosts.at[k];
        h->cpu = h->market = "";
        h->availability = 1;
        h->net_bytes_per_s = t->net_bytes_per_s;
        if (strcmp(h->name, mine) == 0) {
            h->cpu = ru_arena_str(arena, cpu);
            h->cores = t->cores;
            h->memory_bytes = ru_self_memory_bytes();
        }
        if (h->cpu == NULL) {
            return full(err);
        }
    }
    w->cluster.hosts.at = hosts;
    return RU_OK;
}

static ru_status put_job(const rui_trainer *t, ru_arena *arena, ru_world *w, ru_err *err)
{
    ru_world_job *job = RU_NEW(arena, ru_world_job, 1);
    if (job == NULL) {
        return full(err);
    }
    *job = (ru_world_job){.name = t->job->name,
                          .model = t->model.name,
                          .data = "",
                          .batch = t->job->train.batch,
                          .samples = ru_dataset_count(t->train_set),
                          .steps = t->steps_end == INT64_MAX ? 0 : t->steps_end,
                          .parameters = t->step.parameters,
                          .workers_min = 1,
                          .deterministic = t->deterministic,
                          .equal_shares = t->equal_shares,
                          .gradient_bytes = t->gradient_bytes,
                          .state_bytes = t->state_bytes};
    w->jobs.at = job;
    w->jobs.n = 1;
    if (job->gradient_bytes.n > 0) {
        return RU_OK;
    }
    const ru_exe_grad *grads; /* one process: as its executable makes them */
    uint32_t n = ru_exe_grads(t->exe, &grads);
    int64_t *bytes = RU_NEW(arena, int64_t, n);
    for (uint32_t k = 0; bytes != NULL && k < n; k++) {
        bytes[k] = grads[k].size_bytes;
    }
    job->gradient_bytes = (ru_conf_i64s){bytes, n};
    return bytes != NULL ? RU_OK : full(err);
}

static ru_status put_facts(const rui_trainer *t, ru_arena *arena, ru_world *w, ru_err *err)
{
    int64_t steps = t->step_done - t->step_resumed;
    RU_TRY(ru_op_list(t->exe, t->opt->rank, arena, w, err));
    if (steps <= 0) {
        return RU_OK;
    }
    ru_exe_stats s;
    ru_exe_stats_get(t->exe, &s);
    ru_step_fact *step = RU_NEW(arena, ru_step_fact, 1);
    if (step == NULL) {
        return full(err);
    }
    double n = (double)steps;
    const ru_run_report_split *p = &t->split;
    *step = (ru_step_fact){
        .job = t->job->name,
        .rank = t->opt->rank,
        .workers = t->workers > 0 ? t->workers : 1,
        .samples = t->share_n > 0 ? t->share_n : t->job->train.batch,
        .batch = t->batch > 0 ? t->batch : t->job->train.batch,
        .flops = s.flops,
        .state_bytes = s.state_bytes,
        .arena_bytes = s.arena_bytes,
        .compute_ns = (double)p->compute_ns / n,
        .network_ns = (double)p->network_ns / n,
        .input_ns = (double)p->input_ns / n,
        .wait_ns = (double)p->wait_ns / n,
        .gradient_noise = t->learned.noise,
        .took = {.count = steps,
                 .mean_ns =
                     (double)(p->compute_ns + p->network_ns + p->input_ns + p->wait_ns) / n}};
    w->facts.steps.at = step;
    w->facts.steps.n = 1;
    return RU_OK;
}

ru_status rui_trainer_world(rui_trainer *t, ru_arena *arena, ru_world *w, ru_err *err)
{
    *w = (ru_world){0};
    RU_TRY(rui_trainer_cluster(t, arena, w, err));
    RU_TRY(put_job(t, arena, w, err));
    RU_TRY(put_facts(t, arena, w, err));
    return ru_decisions_get(t->decisions, arena, w, err);
}

ru_status rui_trainer_dir_facts(rui_trainer *t, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_world w;
    ru_text text = ru_text_arena(&arena);
    const char *path = ru_path_join(&arena, t->out, "world.json");
    ru_status st = path != NULL ? rui_trainer_world(t, &arena, &w, err) : full(err);
    st = st == RU_OK ? ru_world_file_put(&w, &text, err) : st;
    uint32_t tries = 0;
    for (bool write = st == RU_OK; write;) {
        st = ru_dir_make(t->out, err);
        st = st == RU_OK ? ru_file_own(path, text.p, text.n, err) : st;
        write = ru_ckpt_again(st, ru_run_place_gone(&t->folder), &tries);
    }
    ru_arena_fini(&arena);
    return st;
}

void rui_trainer_record(rui_trainer *t)
{
    ru_arena scratch;
    ru_err err = {0};
    if (t->recorder == NULL) {
        return;
    }
    ru_exe_record(t->exe, t->recorder);
    ru_recorder_stats stats;
    ru_recorder_stats_get(t->recorder, &stats);
    if (stats.stopped) { /* there is no trace that needs the list */
        return;
    }
    ru_arena_init(&scratch, 0);
    const char *dir = ru_path_join(&scratch, t->out, "trace");
    ru_status st = dir == NULL ? RU_FAIL(&err, RU_E_MEM, "no memory for a path")
                               : ru_op_list_put(dir, t->exe, t->opt->rank, &err);
    if (st != RU_OK) {
        ru_recorder_fail(t->recorder, &err);
    }
    ru_arena_fini(&scratch);
}

void rui_trainer_decided(rui_trainer *t)
{
    const ru_exe_plan *plans;
    uint32_t n = ru_exe_plans(t->exe, &plans);
    ru_exe_stats s;
    ru_exe_stats_get(t->exe, &s);
    for (uint32_t k = 0; k < n; k++) {
        ru_decisions_add(t->decisions, plans[k].policy, plans[k].in,
                         plans[k].policy == &ru_policy_kernel);
    }
    ru_decisions_measured(t->decisions, &ru_policy_mem, "arena_bytes", RU_NAN,
                          (double)s.arena_bytes);
}
