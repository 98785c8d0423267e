#include "launch/hosts.h"

#include <stddef.h>
#include <string.h>

enum { PORT_RDZV = 29400, PORT_MASTER = 29500, PORT_SLURM = 20000, PORTS_SLURM = 10000 };

typedef struct resolver {
    const ru_hosts_flags *f;
    ru_hosts_env env;
    void *env_self;
    ru_arena *arena;
    ru_hosts_plan *p;
    ru_err *err;
    uint32_t w_min, w_max; /* of -w; 0: not given */
} resolver;

/* An empty variable counts as not set. */
static const char *env(const resolver *r, const char *name)
{
    const char *v = r->env == NULL ? NULL : r->env(r->env_self, name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

/* A flag, or what stands for it in the environment. */
static const char *flag(const resolver *r, const char *given, const char *name)
{
    char full[64];
    static const char *const heads[] = {"RUBATO_", "PET_"};
    for (uint32_t i = 0; given == NULL && i < RU_ARRAY_LEN(heads); i++) {
        ru_text t = ru_text_into(full, sizeof full);
        ru_text_putf(&t, "%s%s", heads[i], name);
        given = env(r, full);
    }
    return given;
}

/* Wrong in a flag is wrong usage; the same word out of the environment is not. */
static ru_status wrong(const char *what, const char *given)
{
    return what[0] == '-' && given != NULL ? RU_E_USAGE : RU_E_CONFIG;
}

/* `given`: the flag as it was given, NULL: `text` comes from the environment. */
static ru_status flag_number(const resolver *r, const char *what, const char *given,
                             const char *text, int64_t min, int64_t max, uint32_t *out)
{
    int64_t v;
    if (!ru_str_i64(ru_str_c(text), &v) || v < min || v > max) {
        return RU_FAIL(r->err, wrong(what, given),
                       "%s is '%.60s', expected a number from %lld to %lld", what, text,
                       (long long)min, (long long)max);
    }
    *out = (uint32_t)v;
    return RU_OK;
}

static ru_status number(const resolver *r, const char *what, const char *text, int64_t min,
                        int64_t max, uint32_t *out)
{
    return flag_number(r, what, NULL, text, min, max, out);
}

/* A variable that must be there. */
static ru_status env_number(const resolver *r, const char *name, const char *because, int64_t min,
                            int64_t max, uint32_t *out)
{
    const char *v = env(r, name);
    if (v == NULL) {
        return RU_FAIL(r->err, RU_E_CONFIG, "%s is not set, but %s is; set both or none", name,
                       because);
    }
    return number(r, name, v, min, max, out);
}

static bool host_ok(ru_str host)
{
    for (int64_t i = 0; i < host.n; i++) {
        if (host.p[i] <= ' ' || host.p[i] > '~' || host.p[i] == ',' || host.p[i] == '/') {
            return false;
        }
    }
    return host.n > 0 && host.n < RU_HOSTS_NAME_MAX;
}

/* "host", "host:port", "[v6]:port" into an address with a port. */
static ru_status address(resolver *r, const char *what, const char *given, const char *text,
                         uint32_t port)
{
    ru_str s = ru_str_c(text), host = s;
    int64_t colon = -1, colons = 0;
    for (int64_t i = 0; i < s.n; i++) {
        colons += s.p[i] == ':';
        colon = s.p[i] == ':' ? i : colon;
    }
    bool bracket = ru_str_starts(s, "[");
    bool has_port = colon >= 0 && (bracket ? colon > 0 && s.p[colon - 1] == ']' : colons == 1);
    if (has_port) {
        char digits[16], port_of[64];
        ru_text t = ru_text_into(digits, sizeof digits), name = ru_text_into(port_of, 64);
        ru_text_put_n(&t, s.p + colon + 1, s.n - colon - 1);
        ru_text_putf(&name, "%s (the port)", what);
        RU_TRY(flag_number(r, port_of, given, digits, 1, 65535, &port));
        host = ru_str_n(s.p, colon);
    }
    if (!host_ok(host)) {
        return RU_FAIL(r->err, wrong(what, given), "%s is '%.60s', expected host or host:port",
                       what, text);
    }
    bool v6 = colons > 1 && !bracket;
    char *a = ru_arena_printf(r->arena, v6 ? "[%.*s]:%u" : "%.*s:%u", RU_STR_ARG(host), port);
    if (a == NULL) {
        return RU_FAIL(r->err, RU_E_MEM, "no memory for an address");
    }
    r->p->address = a;
    return RU_OK;
}

static bool is_here(const resolver *r, ru_str host)
{
    static const char *const always[] = {"localhost", "127.0.0.1", "::1", "[::1]"};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(always); i++) {
        if (ru_str_eq_c(host, always[i])) {
            return true;
        }
    }
    for (uint32_t i = 0; i < r->f->n_names_here; i++) {
        const char *name = r->f->names_here[i];
        if (name != NULL && ru_host_same(host, ru_str_c(name))) {
            return true;
        }
    }
    return false;
}

static bool address_here(const resolver *r)
{
    const char *a = r->p->address;
    int64_t n = (int64_t)ru_str_c(a).n;
    while (n > 0 && a[n - 1] != ':') {
        n--;
    }
    return is_here(r, ru_str_n(a, n - 1));
}

/* -w against what a source says about the number of workers. */
static ru_status workers_agree(resolver *r, const char *source, uint32_t min, uint32_t max)
{
    r->p->workers_min = min;
    r->p->workers_max = max;
    if (r->w_min == 0) {
        return RU_OK;
    }
    if (r->w_max < min || r->w_min > max) {
        return RU_FAIL(r->err, RU_E_USAGE,
                       "-w %s and %s (%u) name different numbers of workers; give one of them",
                       r->f->workers, source, max);
    }
    r->p->workers_min = r->w_min;
    r->p->workers_max = r->w_max;
    return RU_OK;
}

static ru_status say(resolver *r, const char *fmt, ...) RU_PRINTF(2, 3);
static ru_status say(resolver *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    r->p->line = ru_arena_vprintf(r->arena, fmt, ap);
    va_end(ap);
    return r->p->line != NULL ? RU_OK
                              : RU_FAIL(r->err, RU_E_MEM, "not enough memory for a message");
}

/* The processes of one start know the same kind of launcher, id (NULL: none), port and number of
 * workers. The name of the first host may differ ("localhost" there). */
static ru_status identify(resolver *r, const char *kind, const char *id, const char *step)
{
    const ru_hosts_plan *p = r->p;
    const char *colon = p->address != NULL ? strrchr(p->address, ':') : NULL;
    r->p->launch = ru_arena_printf(r->arena, "%s %s %s %s %u:%u", kind, id != NULL ? id : "-",
                                   step != NULL ? step : "-", colon != NULL ? colon : "-",
                                   p->workers_min, p->workers_max);
    return r->p->launch != NULL ? RU_OK
                                : RU_FAIL(r->err, RU_E_MEM, "not enough memory for a message");
}

/* -- the sources ----------------------------------------------------------------------------------
 */

/* Which of the hosts are this machine, and how many workers that makes. */
static ru_status mark_here(resolver *r)
{
    ru_hosts *h = &r->p->hosts;
    const char *node = env(r, "SLURMD_NODENAME"); /* what Slurm calls this machine */
    ru_host *at = ru_arena_copy(r->arena, h->at, (int64_t)h->n * (int64_t)sizeof *at,
                                (int64_t) _Alignof(ru_host));
    if (at == NULL) {
        return RU_FAIL(r->err, RU_E_MEM, "no memory for a list of hosts");
    }
    for (uint32_t i = 0; i < h->n; i++) {
        ru_str name = ru_str_c(at[i].name);
        at[i].here = is_here(r, name) || (node != NULL && ru_str_eq_c(name, node));
        r->p->workers_here += at[i].here ? at[i].workers : 0;
    }
    h->at = at;
    return RU_OK;
}

static ru_status from_hosts(resolver *r)
{
    ru_hosts_plan *p = r->p;
    p->source = RU_HOSTS_FLAG;
    RU_TRY(ru_hosts_from_flag(ru_str_c(r->f->hosts), r->arena, &p->hosts, r->err));
    RU_TRY(workers_agree(r, "--hosts", p->hosts.workers, p->hosts.workers));
    RU_TRY(mark_here(r));
    p->founds = RU_FOUNDS_YES;
    return say(r, "%u workers on %u hosts, %u of them here (--hosts)", p->hosts.workers, p->hosts.n,
               p->workers_here);
}

static ru_status per_node(resolver *r, const char *text, uint32_t *n)
{
    ru_str s = ru_str_c(text == NULL ? "1" : text);
    if (ru_str_eq_c(s, "gpu") && r->f->gpu_workers == 0) {
        return RU_FAIL(r->err, RU_E_USAGE,
                       "--nproc-per-node gpu: this machine has no GPU; give a number or cpu");
    }
    uint32_t cpu = r->f->cpu_workers == 0 ? 1 : r->f->cpu_workers;
    if (ru_str_eq_c(s, "auto")) {
        *n = r->f->gpu_workers > 0 ? r->f->gpu_workers : cpu;
    } else if (ru_str_eq_c(s, "gpu")) {
        *n = r->f->gpu_workers;
    } else if (ru_str_eq_c(s, "cpu")) {
        *n = cpu;
    } else {
        uint32_t max;
        RU_TRY(ru_hosts_range(s, "--nproc-per-node", n, &max, r->err));
        if (max != *n) {
            return RU_FAIL(r->err, RU_E_USAGE, "--nproc-per-node takes one number, not a range");
        }
    }
    return RU_OK;
}

/* Where torchrun's flags say that the job is found, and whether here. */
static ru_status torchrun_place(resolver *r, uint32_t nodes_max)
{
    ru_hosts_plan *p = r->p;
    const char *endpoint = flag(r, r->f->rdzv_endpoint, "RDZV_ENDPOINT");
    const char *rank = flag(r, r->f->node_rank, "NODE_RANK");
    const char *master = flag(r, r->f->master_addr, "MASTER_ADDR");
    const char *port_text = flag(r, r->f->master_port, "MASTER_PORT");
    uint32_t port = PORT_MASTER, node = 0;
    if (port_text != NULL) {
        RU_TRY(flag_number(r, "--master-port", r->f->master_port, port_text, 1, 65535, &port));
    }
    if (r->f->standalone || (nodes_max == 1 && endpoint == NULL && master == NULL)) {
        p->founds = RU_FOUNDS_YES;
        return RU_OK;
    }
    if (endpoint != NULL && master != NULL) {
        return RU_FAIL(r->err, RU_E_USAGE,
                       "--rdzv-endpoint %s and --master-addr %s both give the address of the job; "
                       "give one of them",
                       endpoint, master);
    }
    if (rank != NULL) {
        RU_TRY(flag_number(r, "--node-rank", r->f->node_rank, rank, 0, nodes_max - 1, &node));
    }
    if (endpoint != NULL) {
        RU_TRY(address(r, "--rdzv-endpoint", r->f->rdzv_endpoint, endpoint, PORT_RDZV));
    } else {
        if (master == NULL && nodes_max > 1) {
            return RU_FAIL(r->err, RU_E_USAGE,
                           "--nnodes %u needs --rdzv-endpoint host:port (or --master-addr and "
                           "--node-rank) as the address of the job",
                           nodes_max);
        }
        RU_TRY(address(r, "--master-addr", r->f->master_addr, master == NULL ? "127.0.0.1" : master,
                       port));
    }
    if (rank != NULL) {
        p->rank = node * p->workers_here;
        p->founds = node == 0 ? RU_FOUNDS_YES : RU_FOUNDS_NO;
    } else {
        p->founds = address_here(r) ? RU_FOUNDS_IF_FREE : RU_FOUNDS_NO;
    }
    return RU_OK;
}

static ru_status from_torchrun(resolver *r)
{
    ru_hosts_plan *p = r->p;
    uint32_t min = 1, max = 1, each;
    const char *nnodes = flag(r, r->f->nnodes, "NNODES");
    const char *restarts = flag(r, r->f->max_restarts, "MAX_RESTARTS");
    p->source = RU_HOSTS_TORCHRUN;
    if (nnodes != NULL) {
        RU_TRY(ru_hosts_range(ru_str_c(nnodes), "--nnodes", &min, &max, r->err));
    }
    if (r->f->standalone && max > 1) {
        return RU_FAIL(r->err, RU_E_USAGE,
                       "--standalone means one node, but --nnodes is %s; give one of them", nnodes);
    }
    RU_TRY(per_node(r, flag(r, r->f->nproc_per_node, "NPROC_PER_NODE"), &each));
    if ((uint64_t)max * each > RU_HOSTS_WORKERS_MAX) {
        return RU_FAIL(r->err, RU_E_USAGE,
                       "--nnodes %u times --nproc-per-node %u must be at most %d", max, each,
                       RU_HOSTS_WORKERS_MAX);
    }
    if (restarts != NULL) {
        RU_TRY(flag_number(r, "--max-restarts", r->f->max_restarts, restarts, 0, 1000000,
                           &p->restarts_max));
    }
    p->workers_here = each;
    p->job = flag(r, r->f->rdzv_id, "RDZV_ID");
    RU_TRY(workers_agree(r, "--nnodes times --nproc-per-node", min * each, max * each));
    RU_TRY(torchrun_place(r, max));
    RU_TRY(identify(r, "rendezvous", p->job, NULL));
    char all[32];
    ru_text t = ru_text_into(all, sizeof all);
    ru_text_putf(&t, "%u", p->workers_min);
    if (p->workers_min < p->workers_max) {
        ru_text_putf(&t, " to %u", p->workers_max);
    }
    return say(r, "%u worker%s here, %s in all (torchrun's flags); %s%s", each, each > 1 ? "s" : "",
               all,
               p->address == NULL           ? "starts the job"
               : p->founds == RU_FOUNDS_NO  ? "joins the job at "
               : p->founds == RU_FOUNDS_YES ? "starts the job at "
                                            : "starts or joins the job at ",
               p->address == NULL ? "" : p->address);
}

/* This process is worker `rank` of `size`; the address is known. */
static ru_status one_worker(resolver *r, uint32_t rank, uint32_t size, const char *source)
{
    ru_hosts_plan *p = r->p;
    p->is_worker = true;
    p->workers_here = 1;
    p->rank = rank;
    p->founds = rank == 0 ? RU_FOUNDS_YES : RU_FOUNDS_NO;
    RU_TRY(workers_agree(r, source, size, size));
    return say(r, "worker %u of %u (%s); %s%s", rank + 1, size, source,
               rank == 0 ? "starts the job" : "joins the job at ", rank == 0 ? "" : p->address);
}

/* MASTER_ADDR and MASTER_PORT, else the given defaults; host NULL: MASTER_ADDR must be there. */
static ru_status master(resolver *r, const char *because, const char *host, uint32_t port)
{
    const char *addr = env(r, "MASTER_ADDR"), *port_text = env(r, "MASTER_PORT");
    if (port_text != NULL) {
        RU_TRY(number(r, "MASTER_PORT", port_text, 1, 65534, &port));
    }
    /* torchrun's agent listens at MASTER_PORT itself then. */
    const char *agent = env(r, "TORCHELASTIC_USE_AGENT_STORE");
    if (agent != NULL && (ru_str_eq_c(ru_str_c(agent), "True") || agent[0] == '1')) {
        port++;
    }
    addr = addr == NULL ? host : addr;
    if (addr == NULL) {
        return RU_FAIL(r->err, RU_E_CONFIG,
                       "%s means that there are other workers, but MASTER_ADDR is not set; set it "
                       "to the host of worker 0, or unset RANK and WORLD_SIZE to train on this "
                       "machine alone",
                       because);
    }
    return address(r, "MASTER_ADDR", NULL, addr, port);
}

static ru_status from_rank(resolver *r)
{
    uint32_t rank, size;
    r->p->source = RU_HOSTS_RANK;
    RU_TRY(env_number(r, "WORLD_SIZE", "RANK", 1, RU_HOSTS_WORKERS_MAX, &size));
    RU_TRY(env_number(r, "RANK", "WORLD_SIZE", 0, size - 1, &rank));
    const char *local = env(r, "LOCAL_RANK");
    if (local != NULL) {
        RU_TRY(number(r, "LOCAL_RANK", local, 0, size - 1, &r->p->local));
    }
    const char *restarts = env(r, "TORCHELASTIC_MAX_RESTARTS");
    if (restarts != NULL) {
        RU_TRY(number(r, "TORCHELASTIC_MAX_RESTARTS", restarts, 0, 1000000, &r->p->restarts_max));
    }
    r->p->job = env(r, "TORCHELASTIC_RUN_ID");
    RU_TRY(master(r, "WORLD_SIZE", size == 1 ? "127.0.0.1" : NULL, PORT_MASTER));
    RU_TRY(one_worker(r, rank, size,
                      r->p->job != NULL ? "RANK and WORLD_SIZE, set by torchrun"
                                        : "RANK and WORLD_SIZE"));
    return r->p->job != NULL ? identify(r, "torchrun", r->p->job, NULL) : RU_OK;
}

/* Jobs and steps that share a host must not share a port. */
static uint32_t slurm_port(const resolver *r)
{
    const char *job = env(r, "SLURM_JOB_ID"), *step = env(r, "SLURM_STEP_ID");
    uint64_t j = 0, s = 0;
    if (job != NULL) {
        (void)ru_str_u64(ru_str_c(job), &j);
    }
    if (step != NULL) {
        (void)ru_str_u64(ru_str_c(step), &s);
    }
    return (uint32_t)(PORT_SLURM + (j * 7 + s) % PORTS_SLURM);
}

static ru_status slurm_hosts(resolver *r, const char *counts_name, ru_hosts *hosts,
                             const char **name)
{
    *name = env(r, "SLURM_STEP_NODELIST") != NULL  ? "SLURM_STEP_NODELIST"
            : env(r, "SLURM_JOB_NODELIST") != NULL ? "SLURM_JOB_NODELIST"
                                                   : "SLURM_NODELIST";
    const char *list = env(r, *name), *counts = env(r, counts_name);
    if (list == NULL) {
        return RU_FAIL(r->err, RU_E_CONFIG,
                       "SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not; unset the first or set "
                       "the second");
    }
    ru_status st = ru_hosts_from_slurm(ru_str_c(list), r->arena, hosts, r->err);
    if (st != RU_OK) {
        return ru_err_wrap(r->err, st, "%s", *name);
    }
    if (counts != NULL) {
        st = ru_hosts_counts(ru_str_c(counts), r->arena, hosts, r->err);
        return st == RU_OK ? RU_OK : ru_err_wrap(r->err, st, "%s", counts_name);
    }
    return RU_OK;
}

static const char *slurm_size_name(const resolver *r)
{
    return env(r, "SLURM_STEP_NUM_TASKS") != NULL ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

static ru_status from_slurm_step(resolver *r)
{
    uint32_t rank, size;
    ru_hosts hosts;
    const char *list, *size_name = slurm_size_name(r), *local = env(r, "SLURM_LOCALID");
    r->p->source = RU_HOSTS_SLURM;
    RU_TRY(env_number(r, size_name, "SLURM_PROCID", 1, RU_HOSTS_WORKERS_MAX, &size));
    RU_TRY(env_number(r, "SLURM_PROCID", size_name, 0, size - 1, &rank));
    if (local != NULL) {
        RU_TRY(number(r, "SLURM_LOCALID", local, 0, size - 1, &r->p->local));
    }
    RU_TRY(slurm_hosts(r, "SLURM_STEP_TASKS_PER_NODE", &hosts, &list));
    r->p->job = env(r, "SLURM_JOB_ID");
    /* What Slurm calls a node need not be a name of the network; tasks of one node need none. */
    RU_TRY(master(r, list, hosts.n == 1 ? "127.0.0.1" : hosts.at[0].name, slurm_port(r)));
    char *source = ru_arena_printf(r->arena, "Slurm: SLURM_PROCID, %s, %s", size_name, list);
    if (source == NULL) {
        return RU_FAIL(r->err, RU_E_MEM, "not enough memory for a message");
    }
    RU_TRY(one_worker(r, rank, size, source));
    return identify(r, "slurm", r->p->job, env(r, "SLURM_STEP_ID"));
}

/* In a batch script: the hosts are ours, nothing runs there yet. */
static ru_status from_slurm_batch(resolver *r)
{
    ru_hosts_plan *p = r->p;
    const char *list;
    p->source = RU_HOSTS_SLURM_BATCH;
    RU_TRY(slurm_hosts(r, "SLURM_TASKS_PER_NODE", &p->hosts, &list));
    p->job = env(r, "SLURM_JOB_ID");
    p->founds = RU_FOUNDS_YES;
    RU_TRY(mark_here(r));
    RU_TRY(master(r, list, p->hosts.at[0].name, slurm_port(r)));
    RU_TRY(workers_agree(r, list, p->hosts.workers, p->hosts.workers));
    return say(r, "%u workers on %u hosts, %u of them here (Slurm: %s); starts the job at %s",
               p->hosts.workers, p->hosts.n, p->workers_here, list, p->address);
}

static ru_status from_mpi(resolver *r, bool open_mpi)
{
    const char *rank_name = open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK";
    const char *size_name = open_mpi ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE";
    const char *local = env(r, open_mpi ? "OMPI_COMM_WORLD_LOCAL_RANK" : "MPI_LOCALRANKID");
    const char *here = env(r, open_mpi ? "OMPI_COMM_WORLD_LOCAL_SIZE" : "MPI_LOCALNRANKS");
    uint32_t rank, size, n_here = 0;
    r->p->source = open_mpi ? RU_HOSTS_OPEN_MPI : RU_HOSTS_PMI;
    RU_TRY(env_number(r, size_name, rank_name, 1, RU_HOSTS_WORKERS_MAX, &size));
    RU_TRY(env_number(r, rank_name, size_name, 0, size - 1, &rank));
    if (local != NULL) {
        RU_TRY(number(r, "the local rank", local, 0, size - 1, &r->p->local));
    }
    if (here != NULL) {
        RU_TRY(number(r, "the local size", here, 1, size, &n_here));
    }
    RU_TRY(master(r, size_name, n_here == size || size == 1 ? "127.0.0.1" : NULL, PORT_MASTER));
    RU_TRY(one_worker(r, rank, size,
                      open_mpi ? "Open MPI: OMPI_COMM_WORLD_RANK and _SIZE"
                               : "PMI: PMI_RANK and PMI_SIZE"));
    return identify(r, open_mpi ? "openmpi" : "pmi", open_mpi ? env(r, "PMIX_NAMESPACE") : NULL,
                    NULL);
}

static ru_status alone(resolver *r)
{
    ru_hosts_plan *p = r->p;
    p->source = RU_HOSTS_ALONE;
    p->workers_min = r->w_min == 0 ? 1 : r->w_min;
    p->workers_max = r->w_max == 0 ? 1 : r->w_max;
    p->workers_here = p->workers_min;
    p->founds = RU_FOUNDS_YES;
    return say(r, "%u worker%s here, up to %u (%s)", p->workers_here,
               p->workers_here > 1 ? "s" : "", p->workers_max,
               r->w_min == 0 ? "no launcher or option names others" : "-w");
}

/* -- which one wins -------------------------------------------------------------------------------
 */

/* The first of torchrun's flags that is given, for sentences; NULL: none. */
static const char *torchrun_flag(const resolver *r, bool given_only)
{
    const ru_hosts_flags *f = r->f;
    const struct {
        const char *given, *name, *env;
    } rows[] = {{f->nnodes, "--nnodes", "NNODES"},
                {f->nproc_per_node, "--nproc-per-node", "NPROC_PER_NODE"},
                {f->rdzv_endpoint, "--rdzv-endpoint", "RDZV_ENDPOINT"},
                {f->node_rank, "--node-rank", "NODE_RANK"},
                {f->master_addr, "--master-addr", NULL},
                {f->master_port, "--master-port", NULL},
                {f->rdzv_id, "--rdzv-id", NULL},
                {f->standalone ? "" : NULL, "--standalone", NULL}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        bool set = rows[i].given != NULL ||
                   (!given_only && rows[i].env != NULL && flag(r, NULL, rows[i].env) != NULL);
        if (set) {
            return rows[i].name;
        }
    }
    return NULL;
}

static ru_status conflict(resolver *r, const char *a, const char *b)
{
    return RU_FAIL(r->err, RU_E_USAGE, "%s and %s both name the hosts of workers; give one of them",
                   a, b);
}

static ru_status conflicts(resolver *r, const char *ranks, bool step)
{
    const char *torchrun = torchrun_flag(r, true);
    uint32_t size = 0, tasks = 0;
    if (r->f->hosts != NULL && torchrun != NULL) {
        return conflict(r, "--hosts", torchrun);
    }
    if (ranks != NULL && (r->f->hosts != NULL || torchrun != NULL)) {
        return conflict(r, r->f->hosts != NULL ? "--hosts" : torchrun, ranks);
    }
    if (!step) {
        return RU_OK;
    }
    const char *name = slurm_size_name(r), *v = env(r, name);
    if (v != NULL) {
        RU_TRY(number(r, name, v, 1, INT32_MAX, &tasks));
    }
    if (r->f->hosts != NULL && tasks > 1) {
        return conflict(r, "--hosts", "srun (SLURM_PROCID)");
    }
    const char *world = env(r, "WORLD_SIZE");
    if (world != NULL && env(r, "TORCHELASTIC_RUN_ID") == NULL && tasks > 1 &&
        ru_str_u64(ru_str_c(world), &(uint64_t){0})) {
        RU_TRY(number(r, "WORLD_SIZE", world, 1, RU_HOSTS_WORKERS_MAX, &size));
        if (size != tasks) {
            return RU_FAIL(r->err, RU_E_CONFIG,
                           "WORLD_SIZE is %u but %s is %u; unset one of them or make them equal",
                           size, name, tasks);
        }
    }
    return RU_OK;
}

ru_status ru_hosts_resolve(const ru_hosts_flags *flags, ru_hosts_env get, void *env_self,
                           ru_arena *arena, ru_hosts_plan *out, ru_err *err)
{
    ru_hosts_plan plan = {0};
    resolver r = {
        .f = flags, .env = get, .env_self = env_self, .arena = arena, .p = &plan, .err = err};
    const char *ranks = env(&r, "RANK") != NULL         ? "RANK"
                        : env(&r, "WORLD_SIZE") != NULL ? "WORLD_SIZE"
                                                        : NULL;
    bool slurm = env(&r, "SLURM_JOB_ID") != NULL;
    bool step = slurm && env(&r, "SLURM_STEP_ID") != NULL && env(&r, "SLURM_PROCID") != NULL;
    if (flags->workers != NULL) {
        RU_TRY(ru_hosts_range(ru_str_c(flags->workers), "-w", &r.w_min, &r.w_max, err));
    }
    RU_TRY(conflicts(&r, ranks, step));
    if (flags->hosts != NULL) {
        RU_TRY(from_hosts(&r));
    } else if (torchrun_flag(&r, true) != NULL ||
               (ranks == NULL && torchrun_flag(&r, false) != NULL)) {
        RU_TRY(from_torchrun(&r));
    } else if (ranks != NULL) {
        RU_TRY(from_rank(&r));
    } else if (step) {
        RU_TRY(from_slurm_step(&r));
    } else if (slurm) {
        RU_TRY(from_slurm_batch(&r));
    } else if (env(&r, "OMPI_COMM_WORLD_RANK") != NULL) {
        RU_TRY(from_mpi(&r, true));
    } else if (env(&r, "PMI_RANK") != NULL) {
        RU_TRY(from_mpi(&r, false));
    } else {
        RU_TRY(alone(&r));
    }
    *out = plan;
    return RU_OK;
}
