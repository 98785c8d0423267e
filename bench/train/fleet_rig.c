#include "bench/train/fleet_rig.h"

#include <jansson.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"

const char *rui_fleet_path(const rui_fleet *r, const char *name)
{
    return ru_path_join(r->b->arena, r->b->dir, name);
}

static const char *client_file(const rui_fleet *r, uint32_t k, const char *kind)
{
    return rui_fleet_path(r, ru_arena_printf(r->b->arena, "%s-c%u.%s", r->name, k, kind));
}

ru_status rui_fleet_open(rui_fleet *r, const char *job, ru_err *err)
{
    const char *yaml = ru_arena_printf(r->b->arena, "%s.yaml", r->name);
    r->run = rui_fleet_path(r, ru_arena_printf(r->b->arena, "%s-run", r->name));
    r->lines = ru_path_join(r->b->arena, r->run, "federation.jsonl");
    return ru_file_replace(rui_fleet_path(r, yaml), job, (int64_t)strlen(job), err);
}

ru_status rui_fleet_client(const rui_fleet *r, uint32_t k, const char *data, ru_err *err)
{
    ru_arena *a = r->b->arena;
    const char *line;
    const char *argv[] = {ru_bench_rubato(a),
                          "fed",
                          "token",
                          ru_arena_printf(a, "c%u", k),
                          "--secret",
                          rui_fleet_path(r, "fed.secret"),
                          NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = ru_process_line(p, 0, &line, err);
    if (st == RU_OK && line == NULL) {
        st = RU_FAIL(err, RU_E_USER, "rubato fed token printed nothing");
    }
    st = st == RU_OK ? ru_file_secret(client_file(r, k, "token"), line, (int64_t)strlen(line), err)
                     : st;
    ru_process_close(p);
    RU_TRY(st);
    return ru_file_replace(client_file(r, k, "yaml"), data, (int64_t)strlen(data), err);
}

/* Where the server listens: a port that was free. */
static ru_status find_address(rui_fleet *r, ru_err *err)
{
    static const char said[] = "clients join at ";
    const char *line = "", *at = NULL;
    while (line != NULL && at == NULL) {
        RU_TRY(ru_process_line(r->server, 0, &line, err));
        at = line != NULL ? strstr(line, said) : NULL;
    }
    r->address = at != NULL ? ru_arena_str(r->b->arena, at + sizeof said - 1) : NULL;
    return r->address != NULL ? RU_OK : RU_FAIL(err, RU_E_USER, "rubato fed serve does not listen");
}

static uint32_t put_words(const char **argv, const char *const *in)
{
    uint32_t n = 0;
    for (; in != NULL && in[n] != NULL && n < RUI_FLEET_WORDS_MAX; n++) {
        argv[n] = in[n];
    }
    return n;
}

ru_status rui_fleet_serve(rui_fleet *r, const char *const *sets, uint32_t n, ru_err *err)
{
    enum { MORE = 16, SETS_MAX = 8 };
    /* It says on stderr where it listens, and little else. */
    const char *argv[RUI_FLEET_WORDS_MAX + MORE + 2 * SETS_MAX];
    const char *const words[] = {
        "sh",
        "-c",
        "exec \"$@\" 2>&1",
        "sh",
        ru_bench_rubato(r->b->arena),
        "fed",
        "serve",
        rui_fleet_path(r, ru_arena_printf(r->b->arena, "%s.yaml", r->name)),
        "--listen",
        r->listen != NULL ? r->listen : "127.0.0.1:0",
        "--out",
        r->run,
        "--secret",
        rui_fleet_path(r, "fed.secret")};
    RU_CHECK(n <= SETS_MAX);
    uint32_t k = put_words(argv, r->server_in);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(words); i++) {
        argv[k++] = words[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        argv[k++] = "--set";
        argv[k++] = sets[i];
    }
    argv[k] = NULL;
    if (ru_path_exists(r->run)) {
        RU_TRY(ru_path_remove(r->run, err));
    }
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    RU_TRY(ru_process_start(&opt, &r->server, err));
    return find_address(r, err);
}

ru_status rui_fleet_join(rui_fleet *r, uint32_t k, const char *const *in, ru_err *err)
{
    const char *argv[RUI_FLEET_WORDS_MAX + 12];
    const char *const words[] = {ru_bench_rubato(r->b->arena),
                                 "fed",
                                 "join",
                                 r->address,
                                 "--token-file",
                                 client_file(r, k, "token"),
                                 "--data",
                                 client_file(r, k, "yaml"),
                                 "-t",
                                 "1",
                                 NULL};
    memcpy(argv + put_words(argv, in), words, sizeof words);
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    return ru_process_start(&opt, &r->client[k], err);
}

ru_status rui_fleet_look(const rui_fleet *r, uint32_t skip, uint32_t *rounds, double *seconds,
                         ru_err *err)
{
    char *text;
    int64_t n;
    ru_arena_mark mark = ru_arena_mark_get(r->b->arena);
    *rounds = 0;
    *seconds = 0;
    if (!ru_path_exists(r->lines)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(r->lines, 0, r->b->arena, &text, &n, err));
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        json_t *o = json_loadb(at, (size_t)(end - at), 0, NULL);
        const json_t *took = json_object_get(o, "seconds"); /* of rounds alone */
        *seconds += *rounds >= skip ? json_number_value(took) : 0;
        *rounds += took != NULL ? 1 : 0;
        json_decref(o);
    }
    ru_arena_rewind(r->b->arena, mark);
    return RU_OK;
}

ru_status rui_fleet_wait(rui_fleet *r, ru_err *err)
{
    const char *line = "";
    while (line != NULL) { /* what it says goes nowhere, but must be read */
        RU_TRY(ru_process_line(r->server, 0, &line, err));
    }
    int code = ru_process_wait(r->server);
    return code == 0 ? RU_OK : RU_FAIL(err, RU_E_USER, "rubato fed serve ended with code %d", code);
}

void rui_fleet_close(rui_fleet *r)
{
    for (uint32_t k = 0; k < RUI_FLEET_CLIENTS_MAX; k++) {
        ru_process_close(r->client[k]);
        r->client[k] = NULL;
    }
    ru_process_close(r->server);
    r->server = NULL;
}
