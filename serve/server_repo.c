/* The repository: models in folders, each version in a folder with a number.
 *
 *     DIR/<model>/[config.pbtxt]   DIR/<model>/<version>/model.onnx
 *
 * Loading a model that is there already opens its versions anew, beside those that answer. When all
 * new ones are ready they take the requests, and the old ones drain; when one fails the old ones
 * stay. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "env/file/file.h"
#include "serve/server_impl.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* One load of a model, until all its versions are open. */
typedef struct loading {
    ru_server *server;
    ru_http_request *r; /* who asked; NULL: nobody */
    uint64_t number;
    uint32_t left;
    ru_err err; /* of the first that failed */
    char model[];
} loading;

static bool of_model(const rui_version *v, const char *model)
{
    return v->state != RUI_DRAINING && strcmp(v->model, model) == 0;
}

static void answer_json(ru_http_request *r)
{
    rui_give_text(r, "application/json", ru_str_c("{}"), NULL, NULL);
}

/* Does it go? The old versions do; when one failed, the new ones where old ones answer, and those
 * that failed before. Versions of a later load are its own. */
static bool goes(const loading *l, const rui_version *v, bool others)
{
    bool old = v->load < l->number;
    return of_model(v, l->model) && v->load <= l->number &&
           (l->err.status == RU_OK ? old
            : old                  ? v->state == RUI_FAILED
                                   : others);
}

static void settle(loading *l)
{
    bool failed = l->err.status != RU_OK, others = false;
    for (const rui_version *v = l->server->versions; v != NULL; v = v->next) {
        others = others || (of_model(v, l->model) && v->load != l->number && v->state == RUI_READY);
    }
    for (rui_version *v = l->server->versions, *next; v != NULL; v = next) {
        next = v->next;
        v->waits = v->waits && v->load != l->number;
        if (goes(l, v, others)) {
            rui_version_drain(v);
        }
    }
    if (failed) {
        ru_log(RU_LOG_WARN, "serve", "not_loaded", "%s: %s", l->model, l->err.text);
    }
    if (l->r != NULL && failed) {
        bool again = l->server->stopping; /* another server may have it */
        ru_http_refuse(l->r, again ? 503 : 400, l->err.text, again ? 1 : 0);
    } else if (l->r != NULL) {
        answer_json(l->r);
    }
    free(l);
}

static void on_opened(void *self, const ru_err *err)
{
    loading *l = self;
    if (err != NULL && l->err.status == RU_OK) {
        l->err = *err;
    }
    if (--l->left == 0) {
        settle(l);
    }
}

static rui_version *next_loading(const ru_server *s)
{
    rui_version *v = s->versions;
    while (v != NULL && (v->state != RUI_LOADING || v->done != on_opened)) {
        v = v->next;
    }
    return v;
}

void rui_repository_stop(ru_server *s)
{
    for (rui_version *v = next_loading(s); v != NULL; v = next_loading(s)) {
        v->state = RUI_FAILED;
        v->err.status = RU_FAIL(&v->err, RU_E_AGAIN, "the server stops");
        on_opened(v->done_self, &v->err);
    }
}

/* -- folders -----------------------------------------------------------------------------------
 */

static int64_t version_of(const char *name)
{
    int64_t n;
    return ru_str_i64(ru_str_c(name), &n) && n > 0 && name[0] != '0' && name[0] != '+' ? n : 0;
}

static ru_status read_config(const char *folder, ru_arena *arena, rui_config *out, ru_err *err)
{
    const char *path = ru_path_join(arena, folder, "config.pbtxt");
    char *text = NULL;
    int64_t n = 0;
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    if (ru_path_exists(path)) {
        RU_TRY(ru_file_read(path, CONFIG_BYTES_MAX, arena, &text, &n, err));
    }
    ru_status st = rui_config_read(ru_str_n(text, n), out, err);
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", path);
}

/* Is version `n` one of those that the policy chooses? `newer`: how many are newer. */
static bool chosen(const rui_config *c, int64_t n, uint32_t newer)
{
    bool named = c->n_specific == 0;
    for (uint32_t k = 0; k < c->n_specific; k++) {
        named = named || c->specific[k] == n;
    }
    return named && (c->all || c->n_specific > 0 || newer < (uint64_t)c->latest);
}

static ru_status begin_version(loading *l, const char *folder, const char *version, ru_err *err)
{
    rui_version *v = rui_version_new(l->server, l->model, version, err);
    if (v == NULL) {
        return RU_E_MEM;
    }
    ru_status st = read_config(folder, &v->arena, &v->config, err);
    const char *at = st == RU_OK ? ru_path_join(&v->arena, folder, version) : NULL;
    const char *file = v->config.file.n > 0
                           ? ru_arena_strn(&v->arena, v->config.file.p, v->config.file.n)
                           : "model.onnx";
    v->path = at != NULL && file != NULL ? ru_path_join(&v->arena, at, file) : NULL;
    v->load = l->number;
    v->waits = true;
    v->done = on_opened;
    v->done_self = l;
    if (st == RU_OK && v->path == NULL) {
        st = RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    if (st == RU_OK && file[strcspn(file, "/")] != '\0') {
        st = RU_FAIL(err, RU_E_DATA, "default_model_filename '%s' is not a name of a file", file);
    }
    st = st == RU_OK ? rui_version_begin(v, err) : st;
    if (st != RU_OK) {
        rui_version_free(v);
        return st;
    }
    l->left++;
    return RU_OK;
}

static ru_status begin_versions(loading *l, const char *folder, ru_arena *scratch, ru_err *err)
{
    char **names;
    uint32_t n;
    rui_config c;
    RU_TRY(read_config(folder, scratch, &c, err));
    if (c.name.n > 0 && !ru_str_eq_c(c.name, l->model)) {
        return RU_FAIL(err, RU_E_DATA, "config.pbtxt has the name '%.*s', not that of its folder",
                       RUI_CUT(c.name, 100));
    }
    RU_TRY(ru_dir_list(folder, scratch, &names, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        int64_t version = version_of(names[k]);
        uint32_t newer = 0;
        for (uint32_t i = 0; i < n; i++) {
            newer += version_of(names[i]) > version ? 1 : 0;
        }
        if (version > 0 && chosen(&c, version, newer)) {
            RU_TRY(begin_version(l, folder, names[k], err));
        }
    }
    return l->left > 0 ? RU_OK
                       : RU_FAIL(err, RU_E_MISSING,
                                 "%s has no folder with the number of a version that is to be "
                                 "loaded",
                                 folder);
}

/* Load a model; `r` is answered when it is open, or failed. */
static void load(ru_server *s, const char *model, ru_http_request *r)
{
    ru_arena scratch;
    ru_err err = {0};
    size_t n = strlen(model) + 1;
    loading *l = calloc(1, sizeof *l + n);
    if (l == NULL) {
        if (r != NULL) {
            ru_http_refuse(r, 503, "no memory to load a model", 1);
        }
        return;
    }
    *l = (loading){.server = s, .r = r, .number = ++s->loads, .left = 1};
    memcpy(l->model, model, n);
    ru_arena_init(&scratch, 0);
    const char *folder = ru_path_join(&scratch, s->repository, model);
    ru_status st = folder == NULL ? RU_FAIL(&err, RU_E_MEM, "no memory to load a model")
                   : strchr(model, '/') != NULL || model[0] == '.' || !ru_path_is_dir(folder)
                       ? RU_FAIL(&err, RU_E_MISSING, "the repository has no model %s", model)
                       : RU_OK;
    l->left = 0;
    st = st == RU_OK ? begin_versions(l, folder, &scratch, &err) : st;
    ru_arena_fini(&scratch);
    if (st != RU_OK && l->left == 0) {
        err.status = st;
        l->left = 1;
        on_opened(l, &err);
    } else if (st != RU_OK) { /* those that began are awaited */
        l->err = err;
        l->err.status = st;
    }
}

ru_status ru_server_repository(ru_server *s, const char *path, ru_err *err)
{
    char **names;
    uint32_t n;
    s->repository = ru_arena_str(s->arena, path);
    if (s->repository == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the repository");
    }
    RU_TRY(ru_dir_list(path, s->arena, &names, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        const char *folder = ru_path_join(s->arena, path, names[k]);
        if (folder != NULL && names[k][0] != '.' && ru_path_is_dir(folder)) {
            load(s, names[k], NULL);
        }
    }
    return RU_OK;
}

/* -- requests ----------------------------------------------------------------------------------
 */

/* {"ready": bool} of an index, {"parameters": {...}} of load and unload; an empty body: neither. */
static ru_status read_body(const ru_http_request *r, ru_arena *arena, bool *ready, ru_err *err)
{
    rui_scan s = rui_scan_over(r->body, r->body_bytes, arena, err);
    ru_str key;
    const char *from;
    bool ignored;
    if (r->body_bytes == 0) {
        return RU_OK;
    }
    for (bool first = rui_scan_open(&s, '{'); rui_scan_key(&s, &first, &key);) {
        if (ru_str_eq_c(key, "ready")) {
            (void)rui_scan_bool(&s, ready);
            continue;
        }
        if (!ru_str_eq_c(key, "parameters")) {
            (void)rui_scan_skip(&s, &from);
            return RU_FAIL(err, RU_E_DATA, "the member '%.*s' is not supported", RUI_CUT(key, 100));
        }
        for (bool one = rui_scan_open(&s, '{'); rui_scan_key(&s, &one, &key);) {
            if (!ru_str_eq_c(key, "unload_dependents")) {
                return RU_FAIL(err, RU_E_DATA, "the parameter '%.*s' is not supported",
                               RUI_CUT(key, 100));
            }
            (void)rui_scan_bool(&s, &ignored);
        }
    }
    (void)rui_scan_end(&s);
    return s.st;
}

static void put_state(ru_json *j, const char *name, const char *version, const char *state,
                      const char *reason)
{
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "name", name);
    if (version != NULL) {
        ru_json_str(j, "version", version);
    }
    ru_json_str(j, "state", state);
    ru_json_str(j, "reason", reason);
    ru_json_close(j);
}

static void put_index(const ru_server *s, bool ready, ru_arena *arena, ru_text *t)
{
    ru_json j = ru_json_into(t);
    char **names = NULL;
    uint32_t n = 0;
    ru_json_open(&j, NULL, '[');
    for (const rui_version *v = s->versions; v != NULL; v = v->next) {
        bool is_ready = v->state == RUI_READY;
        if (v->state != RUI_DRAINING && (is_ready || !ready)) {
            put_state(&j, v->model, v->version,
                      is_ready                  ? "READY"
                      : v->state == RUI_LOADING ? "LOADING"
                                                : "UNAVAILABLE",
                      v->err.text);
        }
    }
    if (!ready && s->repository != NULL &&
        ru_dir_list(s->repository, arena, &names, &n, NULL) != RU_OK) {
        n = 0;
    }
    for (uint32_t k = 0; k < n; k++) {
        const char *folder = ru_path_join(arena, s->repository, names[k]);
        bool here = folder == NULL || names[k][0] == '.' || !ru_path_is_dir(folder);
        for (const rui_version *v = s->versions; v != NULL; v = v->next) {
            here = here || of_model(v, names[k]);
        }
        if (!here) {
            put_state(&j, names[k], NULL, "UNAVAILABLE", "not loaded");
        }
    }
    ru_json_close(&j);
}

static void unload(ru_server *s, const char *model, ru_http_request *r)
{
    uint32_t n = 0, opening = 0;
    for (rui_version *v = s->versions, *next; v != NULL; v = next) {
        next = v->next;
        if (of_model(v, model) && v->state == RUI_LOADING) {
            opening++;
        } else if (of_model(v, model)) {
            n++;
            rui_version_drain(v);
        }
    }
    if (n == 0 && opening > 0) {
        ru_http_refuse(r, 503, "the model loads; it can be unloaded when that has ended", 1);
    } else if (n == 0) {
        ru_http_refuse(r, 400, "no such model is loaded", 0);
    } else {
        answer_json(r);
    }
}

void rui_repository(ru_server *s, ru_http_request *r, const ru_str *part, uint32_t n)
{
    ru_arena arena;
    ru_err err = {0};
    bool ready = false, index = n == 1 && ru_str_eq_c(part[0], "index");
    bool known = n == 3 && ru_str_eq_c(part[0], "models");
    bool loads = known && ru_str_eq_c(part[2], "load");
    ru_arena_init(&arena, 0);
    const char *model = known ? ru_arena_strn(&arena, part[1].p, part[1].n) : NULL;
    ru_text t = ru_text_arena(&arena);
    if (!index && !loads && !(known && ru_str_eq_c(part[2], "unload"))) {
        ru_http_refuse(r, 404, "a repository answers index, models/M/load and models/M/unload", 0);
    } else if (strcmp(r->method, "POST") != 0) {
        ru_http_refuse_method(r, "POST");
    } else if (read_body(r, &arena, &ready, &err) != RU_OK) {
        ru_http_refuse(r, 400, err.text, 0);
    } else if (index) {
        put_index(s, ready, &arena, &t);
        rui_give_copy(r, "application/json", t);
    } else if (s->repository == NULL) {
        ru_http_refuse(r, 400, "this server has no repository: it serves one model", 0);
    } else if (s->stopping || model == NULL) {
        ru_http_refuse(r, 503, s->stopping ? "the server stops" : "no memory for the request", 1);
    } else {
        (loads ? load : unload)(s, model, r);
    }
    ru_arena_fini(&arena);
}
