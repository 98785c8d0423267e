#include "tool/cluster/nodes.h"

#include <string.h>

#include "cluster/slurm.h"
#include "cluster/wire.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "launch/ssh.h"
#include "tool/cluster/markets.h"

static const int64_t ssh_ns = 60 * INT64_C(1000000000);

static const ru_conf_field burst_fields[] = {
    RU_ROW(TEXT, rui_cluster_burst, node, NULL, "name of the node that it is on"),
    RU_ROW(TEXT, rui_cluster_burst, service, NULL,
           "SERVICE.yaml of `rubato cluster burst`, as seen from this file; its path on that node"),
};
const ru_conf_table rui_cluster_burst_table =
    RU_TABLE("burst", rui_cluster_burst, burst_fields, "a service that an agent paces");

ru_status rui_cluster_bursts_check(const rui_cluster *c, ru_err *err)
{
    for (uint32_t k = 0; k < c->bursts.n; k++) {
        const rui_cluster_burst *b = &c->bursts.at[k];
        bool known = false;
        uint32_t before = 0;
        for (uint32_t i = 0; i < c->nodes.n; i++) {
            known = known || strcmp(c->nodes.at[i].name, b->node) == 0;
        }
        for (uint32_t o = 0; o < k; o++) {
            bool here = strcmp(c->bursts.at[o].node, b->node) == 0;
            before += here;
            if (here && strcmp(c->bursts.at[o].service, b->service) == 0) {
                return RU_FAIL(err, RU_E_CONFIG, "bursts: %s is named twice for node '%s'",
                               b->service, b->node);
            }
        }
        if (!known || before >= RU_CLUSTER_SERVICES_MAX) {
            return RU_FAIL(err, RU_E_CONFIG,
                           known ? "bursts: node '%s' has more than %d services"
                                 : "bursts: there is no node '%s' among `nodes`",
                           b->node, RU_CLUSTER_SERVICES_MAX);
        }
    }
    return RU_OK;
}

ru_status rui_cluster_bursts_place(rui_cluster *c, const char *dir, ru_arena *arena, ru_err *err)
{
    rui_cluster_burst *own =
        ru_arena_copy(arena, c->bursts.at, c->bursts.n * (int64_t)sizeof *own, 8);
    bool full = own == NULL && c->bursts.n > 0;
    for (uint32_t k = 0; !full && k < c->bursts.n; k++) {
        if (own[k].service[0] != '/') {
            own[k].service = ru_path_join(arena, dir, own[k].service);
            full = own[k].service == NULL;
        }
    }
    c->bursts.at = own;
    return full ? RU_FAIL(err, RU_E_MEM, "no memory for a cluster") : RU_OK;
}

const char *const *rui_cluster_bursts_of(const rui_cluster *c, const char *node, ru_arena *arena,
                                         uint32_t *n)
{
    const char **of = RU_NEW(arena, const char *, c->bursts.n + 1);
    *n = 0;
    for (uint32_t k = 0; of != NULL && k < c->bursts.n; k++) {
        if (strcmp(c->bursts.at[k].node, node) == 0) {
            of[(*n)++] = c->bursts.at[k].service;
        }
    }
    return of;
}

static ru_status check_name(const rui_cluster *c, uint32_t k, ru_err *err)
{
    uint32_t n_seat;
    const char *name = c->nodes.at[k].name;
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    if (n < 1 || n > 64 || name[n] != 0 || strcmp(name, "scheduler") == 0 ||
        (c->slurm.seats > 0 && ru_slurm_seat_of(name, &n_seat))) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "node '%s': a name has 1 to 64 letters, digits, - and _, and is not "
                       "'scheduler'%s",
                       name, c->slurm.seats > 0 ? " or 'slurm1', the names of Slurm's nodes" : "");
    }
    rui_cluster_node other;
    if (rui_cluster_market_node(c, name, &other)) {
        return RU_FAIL(err, RU_E_CONFIG, "node '%s' has the name of a market's node", name);
    }
    for (uint32_t o = 0; o < k; o++) {
        if (strcmp(c->nodes.at[o].name, name) == 0) {
            return RU_FAIL(err, RU_E_CONFIG, "node '%s' is named twice", name);
        }
    }
    return RU_OK;
}

bool rui_cluster_node_of(const rui_cluster *c, const char *name, rui_cluster_node *out)
{
    uint32_t seat;
    for (uint32_t k = 0; k < c->nodes.n; k++) {
        if (strcmp(c->nodes.at[k].name, name) == 0) {
            *out = c->nodes.at[k];
            return true;
        }
    }
    if (rui_cluster_market_node(c, name, out)) {
        return true;
    }
    *out = c->slurm.node;
    out->name = name;
    out->host = "";
    return ru_slurm_seat_of(name, &seat) && seat < c->slurm.seats;
}

/* A word of ssh's command line goes through a shell of the other host. */
static bool is_plain(const char *text)
{
    return text[0] != '-' &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "-_./@:")] == 0;
}

ru_status rui_cluster_nodes_check(rui_cluster *c, ru_arena *arena, ru_err *err)
{
    bool far = c->slurm.seats > 0 || rui_cluster_markets_far(c);
    rui_cluster_node *own =
        ru_arena_copy(arena, c->nodes.at, c->nodes.n * (int64_t)sizeof *c->nodes.at, 8);
    if (own == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a cluster");
    }
    c->nodes.at = own;
    for (uint32_t k = 0; k < c->nodes.n; k++) {
        rui_cluster_node *n = &own[k];
        far = far || n->host[0] != 0;
        if (!is_plain(n->host)) {
            return RU_FAIL(err, RU_E_CONFIG, "node %s: '%s' is no host", n->name, n->host);
        }
        if (n->name[0] == 0) {
            const char *at = strrchr(n->host, '@');
            at = at != NULL ? at + 1 : n->host;
            n->name = ru_arena_strn(arena, at, (int64_t)strcspn(at, "."));
        }
        RU_TRY(n->name != NULL ? check_name(c, k, err)
                               : RU_FAIL(err, RU_E_MEM, "no memory for a cluster"));
    }
    c->agents = far && strcmp(c->agents, "127.0.0.1:0") == 0 ? ":0" : c->agents;
    c->workers = far && strcmp(c->workers, "127.0.0.1:0") == 0 ? ":0" : c->workers;
    return RU_OK;
}

/* This program, there: it starts or stops the agent and ends. */
static ru_status begin(const rui_cluster *c, const rui_cluster_node *n, bool stop, ru_arena *arena,
                       ru_process **out, ru_err *err)
{
    const char *argv[RU_SSH_WORDS_MAX + 8];
    if (!is_plain(c->folder)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "folder '%s': with nodes on other hosts its path has letters, digits and "
                       "-_./@: alone",
                       c->folder);
    }
    uint32_t k = ru_ssh_words(arena, n->host, "/proc/self/exe", argv);
    const char *rest[] = {"cluster", "agent", stop ? "--stop" : "--start", "--cluster", c->folder,
                          "--node",  n->name};
    for (uint32_t i = 0; i < k; i++) {
        if (argv[i] == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a command line");
        }
    }
    memcpy(&argv[k], rest, sizeof rest);
    argv[k + RU_ARRAY_LEN(rest)] = NULL;
    return ru_process_start(
        &(ru_process_options){.argv = argv, .pipe_in = true, .pipe_out = true, .pipe_err = true},
        out, err);
}

static ru_status end(const rui_cluster_node *n, bool stop, ru_process *p, ru_err *err)
{
    char said[4096];
    int64_t used = 0, got = 0;
    const char *line;
    ru_status st = RU_OK;
    while ((st = ru_process_line(p, ssh_ns, &line, err)) == RU_OK && line != NULL) {
    }
    while (st == RU_OK && used < (int64_t)sizeof said - 1 &&
           (got = ru_process_read(p, true, said + used, (int64_t)sizeof said - 1 - used)) > 0) {
        used += got;
    }
    int code = st == RU_OK ? ru_process_wait(p) : -1;
    while (used > 0 && said[used - 1] == '\n') {
        used--;
    }
    said[used] = 0;
    const char *last = strrchr(said, '\n');
    last = last != NULL ? last + 1 : said;
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_PEER, "cannot %s the agent %s on host %s: %s",
                               stop ? "stop" : "start", n->name, n->host,
                               st != RU_OK    ? "it does not answer"
                               : last[0] != 0 ? last
                                              : "ssh failed without a word");
}

ru_status rui_cluster_nodes_do(const rui_cluster *c, bool stop, bool *of, ru_arena *arena,
                               ru_err *err)
{
    ru_process **p = RU_NEW(arena, ru_process *, c->nodes.n);
    ru_err one;
    if (p == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a cluster");
    }
    ru_status st = RU_OK, first = RU_OK;
    for (uint32_t pass = 0; pass < 2; pass++) { /* all hosts work while one is waited for */
        for (uint32_t k = 0; k < c->nodes.n; k++) {
            const rui_cluster_node *n = &c->nodes.at[k];
            if ((of != NULL && !of[k]) || (pass == 1 && p[k] == NULL)) {
                continue;
            }
            st = pass == 1         ? end(n, stop, p[k], &one)
                 : n->host[0] != 0 ? begin(c, n, stop, arena, &p[k], &one)
                 : stop            ? rui_cluster_agent_stop(c->folder, n->name, arena, &one)
                                   : rui_cluster_agent_start(c->folder, n->name, arena, &one);
            if (st != RU_OK && first == RU_OK) {
                first = RU_FAIL(err, st, "%s", one.text);
            }
            if (st != RU_OK && of != NULL) {
                of[k] = false;
            }
            ru_process_close(pass == 1 ? p[k] : NULL);
        }
    }
    return first;
}
