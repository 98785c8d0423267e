#include "bench/cluster_lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "env/file/file.h"

static const int64_t look_ns = 250000000, patience_ns = 60 * INT64_C(1000000000);

ru_status ru_bench_lab_tell(const ru_bench_lab *l, const char *const *words, bool quiet,
                            ru_process **out, ru_err *err)
{
    enum { FIRST = 6 };
    static const char *const unset[] = {"RUBATO_CLUSTER_KEY", NULL};
    const char *argv[FIRST + 14] = {l->lab.script, "in", l->lab.lab, "1", l->lab.self, "cluster"};
    for (uint32_t k = 0; words[k] != NULL; k++) {
        RU_CHECK(FIRST + 1 + k < RU_ARRAY_LEN(argv));
        argv[FIRST + k] = words[k];
    }
    const ru_process_options opt = {
        .argv = argv, .unset = unset, .set = l->set, .pipe_out = true, .quiet = quiet};
    return ru_process_start(&opt, out, err);
}

ru_status ru_bench_lab_ask(const ru_bench_lab *l, const char *const *words, bool quiet,
                           const char **line, ru_err *err)
{
    const char *next = NULL;
    ru_process *p;
    *line = "";
    RU_TRY(ru_bench_lab_tell(l, words, quiet, &p, err));
    ru_status st = ru_process_line(p, 0, &next, err);
    while (st == RU_OK && next != NULL && *line != NULL) {
        *line = (*line)[0] == 0 ? ru_arena_str(l->b->arena, next) : *line;
        st = ru_process_line(p, 0, &next, err);
    }
    int code = ru_process_wait(p);
    ru_process_close(p);
    RU_TRY(st == RU_OK && *line == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for an answer") : st);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_USER, "rubato cluster %s ended with %d", words[0], code);
}

ru_status ru_bench_lab_end(const ru_bench_lab *l, bool quiet, ru_err *err)
{
    const char *words[] = {"down", NULL}, *line;
    return ru_bench_lab_ask(l, words, quiet, &line, err);
}

ru_status ru_bench_lab_put(const ru_bench_lab *l, const char *name, const ru_text *text,
                           ru_err *err)
{
    const char *path = ru_path_join(l->b->arena, l->lab.dir, name);
    return path != NULL && !text->cut ? ru_file_replace(path, text->p, text->n, err)
                                      : RU_FAIL(err, RU_E_MEM, "no memory for a file");
}

static ru_status put_cluster(const ru_bench_lab *l, ru_alloc_method m, ru_err *err)
{
    ru_text y = ru_text_arena(l->b->arena);
    ru_text_putf(&y,
                 "folder: %s\naccounts: shared\nround: %ds\n"
                 "alloc: {method: %s, demote: %d, resize: %s}\n",
                 l->folder, RU_BENCH_LAB_ROUND_S, ru_alloc_method_name(m), RU_BENCH_LAB_DEMOTE_S,
                 l->restarts ? "restart" : "in_place");
    for (uint32_t k = 1; k <= l->nodes; k++) {
        ru_text_putf(&y, "%s{name: n%u, %sslots: %d, cpu: %.2f}%s", k > 1 ? ", " : "nodes: [", k,
                     k > 1 ? ru_arena_printf(l->b->arena, "host: lab.%u, ", k) : "",
                     RU_BENCH_LAB_SLOTS, l->percent / 100.0, k == l->nodes ? "]\n" : "");
    }
    return ru_bench_lab_put(l, "cluster.yaml", &y, err);
}

ru_status ru_bench_lab_start(const ru_bench_lab *l, ru_alloc_method m, ru_err *err)
{
    const char *words[] = {"up", ru_path_join(l->b->arena, l->lab.dir, "cluster.yaml"), NULL},
               *line;
    ru_err ignored;
    if (words[1] == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a path");
    }
    if (ru_path_exists(l->folder)) { /* of a run that was interrupted */
        (void)!ru_bench_lab_end(l, true, &ignored);
        RU_TRY(ru_path_remove(l->folder, err));
    }
    RU_TRY(put_cluster(l, m, err));
    return ru_bench_lab_ask(l, words, false, &line, err);
}

ru_status ru_bench_lab_bounds(const ru_bench_lab *l, ru_err *err)
{
    const char *path = ru_path_join(l->b->arena, l->folder, "log/n1");
    char *text;
    int64_t n;
    RU_TRY(path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
                        : ru_file_read(path, 16 << 20, l->b->arena, &text, &n, err));
    const char *at = strstr(text, "this node does not bound");
    return at == NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MISSING,
                         "bench cluster gives each worker a part of a core, which needs root or a "
                         "delegated subtree of the control groups: %.*s",
                         (int)strcspn(at, "\n"), at);
}

ru_status ru_bench_lab_name(ru_bench_lab *l, const char *name, ru_err *err)
{
    ru_arena *a = l->b->arena;
    const char *dir = l->lab.dir, *scripts = ru_bench_scripts(a);
    l->folder = ru_path_join(a, dir, name);
    l->set[0] = ru_arena_printf(a, "XDG_CONFIG_HOME=%s", dir);
    l->set[1] = ru_arena_printf(a, "RUBATO_CLUSTER=%s/%s", dir, name);
    l->set[2] = ru_arena_printf(a, "RUBATO_SSH=%s/lab_host.sh", scripts != NULL ? scripts : ".");
    l->set[3] = ru_arena_printf(a, "LAB_NET=%s", l->lab.script);
    l->set[4] = ru_arena_printf(a, "LAB_NAME=%s", l->lab.lab);
    for (uint32_t k = 0; k + 1 < RU_ARRAY_LEN(l->set); k++) {
        RU_TRY(l->set[k] != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for paths"));
    }
    return l->folder != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for paths");
}

const char *ru_bench_lab_field(const char *ps, uint32_t job, const char *key)
{
    char head[32];
    (void)snprintf(head, sizeof head, "{\"job\":%u,", job);
    const char *row = strstr(ps, head), *at = row != NULL ? strstr(row, key) : NULL;
    return at != NULL ? at + strlen(key) : "";
}

ru_status ru_bench_lab_workers(const ru_bench_lab *l, uint32_t job, uint32_t workers, ru_err *err)
{
    const char *words[] = {"ps", "--json", NULL}, *ps;
    for (const ru_time begun = ru_clock_now();
         ru_time_since(ru_clock_now(), begun) < patience_ns;) {
        RU_TRY(ru_bench_lab_ask(l, words, false, &ps, err));
        if (strtoul(ru_bench_lab_field(ps, job, "\"workers\":"), NULL, 10) == workers) {
            return RU_OK;
        }
        ru_clock_pause(look_ns);
    }
    return RU_FAIL(err, RU_E_AGAIN, "job %u does not come to %u workers", job, workers);
}
