/* rubato bench storage, its rows of data.cache: auto: twelve cases of formats, speeds and room.
 *
 * Each case trains a model that costs little: with `auto` and with each form that can be fixed, in
 * turns, in a folder for kept samples that is empty. Beside the time of all epochs stand what
 * `auto` predicted of them and what they took, as `rubato explain` says. Stores are a server of
 * this program that is as slow as the name says. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/reader/range_server.h"
#include "bench/reader/reader.h"
#include "bench/reader/reader_search.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum { SIDE = 224, SIDES = 4, ROUNDS_MAX = 8, EPOCHS = 5 };

static const int64_t patience_ns = INT64_C(300000000000);
static const char *const sides[SIDES] = {"auto", "none", "bytes", "decoded"};

typedef enum kind { FOLDER, TAR, IDX } kind;

/* data as the job names it; %s: where the case has it. */
static const struct {
    const char *name, *data;
} kinds[] = {
    [FOLDER] = {"folder of JPEGs", "format: images, train: '%s/photos'"},
    [TAR] = {"tar of JPEGs", "format: tar, train: ['%s/photos.tar'], classes: 10"},
    [IDX] = {"idx u8", "format: idx, train: ['%s/x', '%s/y']"},
};

static int64_t samples_of(kind k)
{
    return k == IDX ? 640 : 1024; /* more than 64 MiB, which would stay in memory */
}

typedef struct auto_case {
    kind kind;
    uint32_t mb_per_s; /* of its store; 0: files of this machine */
    uint32_t part;     /* room for 1/part of what is decoded */
} auto_case;

static const auto_case cases[] = {{FOLDER, 0, 1}, {FOLDER, 0, 4}, {TAR, 0, 1},   {TAR, 0, 4},
                                  {TAR, 25, 1},   {TAR, 25, 4},   {TAR, 100, 1}, {TAR, 100, 4},
                                  {IDX, 25, 1},   {IDX, 25, 4},   {IDX, 100, 1}, {IDX, 100, 4}};

typedef struct runs {
    const char *dir, *rubato, *job, *run, *kept;
    double took_s[SIDES][ROUNDS_MAX], wrong[ROUNDS_MAX]; /* wrong: percent, of an epoch */
    const char *form;                                    /* that auto chose last */
} runs;

/* All of its output; a program that fails is RU_E_PEER. */
static ru_status output(ru_bench *b, const char *const *argv, const char *word, const char **found,
                        ru_err *err)
{
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    const char *line = NULL;
    ru_process *p = NULL;
    *found = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = ru_process_line(p, patience_ns, &line, err);
    while (st == RU_OK && line != NULL) {
        *found = strstr(line, word) != NULL ? ru_arena_str(b->arena, line) : *found;
        st = ru_process_line(p, patience_ns, &line, err);
    }
    int code = st == RU_OK ? ru_process_wait(p) : 0;
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 && *found != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_PEER, "%s %s ended with %d", argv[0], argv[1], code);
}

/* What auto predicted of an epoch, against what epochs took; and its choice. */
static ru_status told(ru_bench *b, runs *r, double *wrong, ru_err *err)
{
    const char *const argv[] = {r->rubato, "explain", r->run, "keep", "--json", NULL};
    const char *line;
    RU_TRY(output(b, argv, "rubato.explain/1", &line, err));
    json_t *root = json_loads(line, 0, NULL), *one;
    size_t k;
    *wrong = NAN;
    json_array_foreach(json_object_get(root, "errors"), k, one)
    {
        const char *policy = json_string_value(json_object_get(one, "predictor"));
        const char *of = json_string_value(json_object_get(one, "of"));
        if (policy != NULL && of != NULL && strcmp(policy, "keep") == 0 &&
            strcmp(of, "epoch") == 0) {
            *wrong = 100 * json_number_value(json_object_get(one, "median_share"));
        }
    }
    json_t *last =
        json_object_get(json_array_get(json_object_get(root, "decisions"), 0), "decision");
    const char *form = json_string_value(json_object_get(last, "form"));
    r->form = form != NULL ? ru_arena_str(b->arena, form) : "";
    json_decref(root);
    return isfinite(*wrong) ? RU_OK
                            : RU_FAIL(err, RU_E_PEER, "rubato explain tells no measured epoch");
}

static ru_status train(ru_bench *b, runs *r, uint32_t side, uint32_t round, ru_err *err)
{
    const char *cache = ru_arena_printf(b->arena, "data.cache=%s", sides[side]);
    const char *const argv[] = {r->rubato, "train", r->job, "--json", "--out",
                                r->run,    "--set", cache,  NULL};
    const char *line;
    const char *const old[] = {r->run, r->kept};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(old); k++) {
        RU_TRY(ru_path_exists(old[k]) ? ru_path_remove(old[k], err) : RU_OK);
    }
    (void)rui_forget(r->dir);
    RU_TRY(output(b, argv, "rubato.train.summary/1", &line, err));
    json_t *root = json_loads(line, 0, NULL);
    r->took_s[side][round] = json_number_value(json_object_get(root, "wall_s"));
    json_decref(root);
    return side == 0 ? told(b, r, &r->wrong[round], err) : RU_OK;
}

static ru_status add_rows(ru_bench *b, runs *r, const char *name, uint32_t rounds, ru_err *err)
{
    uint32_t best = 1;
    ru_bench_stat of[SIDES];
    for (uint32_t k = 0; k < SIDES; k++) {
        of[k] = ru_bench_stat_of(r->took_s[k], rounds);
        best = k > 0 && of[k].median < of[best].median ? k : best;
    }
    ru_bench_row row = {
        .name = ru_arena_printf(b->arena, "%s, %d epochs (it kept %s)", name, EPOCHS, r->form),
        .unit = "s",
        .lower = true,
        .ours = of[0],
        .theirs = of[best],
        .peer = ru_arena_printf(b->arena, "the best of three fixed: %s", sides[best]),
        .goal = 1 / 1.05};
    RU_TRY(row.name != NULL ? ru_bench_add(b, &row, err) : RU_E_LIMIT);
    row = (ru_bench_row){.name = ru_arena_printf(b->arena, "%s, error of a predicted epoch", name),
                         .unit = "%",
                         .lower = true,
                         .ours = ru_bench_stat_of(r->wrong, rounds),
                         .goal = 10};
    return row.name != NULL ? ru_bench_add(b, &row, err) : RU_E_LIMIT;
}

static ru_status write_job(ru_bench *b, const runs *r, const auto_case *c, const char *where,
                           ru_err *err)
{
    int64_t room = samples_of(c->kind) * 3 * SIDE * SIDE * 5 / 4 / c->part;
    char data[512];
    const char *pattern = kinds[c->kind].data;
    const char *at = strstr(pattern, "%s");
    ru_text t = ru_text_into(data, sizeof data);
    for (; at != NULL; at = strstr(pattern, "%s")) {
        ru_text_putf(&t, "%.*s%s", (int)(at - pattern), pattern, where);
        pattern = at + 2;
    }
    ru_text_put(&t, pattern);
    const char *text = ru_arena_printf(
        b->arena,
        "storage: [{path: '%s', quota: %lld}]\n"
        "data: {%s, %sthreads: 1}\n"
        "model: {zoo: mlp, hidden: [4]}\n"
        "train: {epochs: %d, batch: 32, threads: 1, optimizer: {sgd: {lr: 0.0001}}}\n",
        r->kept, (long long)room, data, c->kind == IDX ? "" : "image_size: 224, ", EPOCHS);
    return text != NULL ? ru_file_own(r->job, text, (int64_t)strlen(text), err)
                        : RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
}

static ru_status bench_case(ru_bench *b, runs *r, const auto_case *c, const char *name, ru_err *err)
{
    uint32_t rounds = b->quick ? 2 : 3;
    const char *where = r->dir;
    ru_range_server *server = NULL;
    const ru_range_server_options so = {
        .dir = r->dir, .delay_ns = 10000000, .bytes_per_s = c->mb_per_s * INT64_C(1000000)};
    if (c->mb_per_s > 0) {
        RU_TRY(ru_range_server_open(&so, &server, err));
        where = ru_arena_printf(b->arena, "http://127.0.0.1:%u", ru_range_server_port(server));
    }
    ru_status st = server != NULL ? ru_range_server_start(server, err) : RU_OK;
    st = st == RU_OK ? write_job(b, r, c, where, err) : st;
    for (uint32_t k = 0; st == RU_OK && k < rounds * SIDES; k++) {
        uint32_t round = k / SIDES, turn = k % SIDES; /* who goes first changes */
        st = train(b, r, (round + turn) % SIDES, round, err);
    }
    ru_range_server_close(server);
    return st == RU_OK ? add_rows(b, r, name, rounds, err) : st;
}

/* -- files ------------------------------------------------------------------------------------- */

static ru_status make_tar(const char *photos, const char *tar, int64_t n, ru_arena *arena,
                          ru_err *err)
{
    char label[8];
    const char *const argv[] = {"tar", "--sort=name", "-cf", tar, "-C", photos, ".", NULL};
    RU_TRY(ru_dir_make(photos, err));
    for (int64_t k = 0; k < n; k++) {
        ru_arena_mark mark = ru_arena_mark_get(arena);
        const char *base = ru_arena_printf(arena, "%s/%05lld", photos, (long long)k);
        const char *photo = base != NULL ? ru_arena_printf(arena, "%s.jpg", base) : NULL;
        const char *cls = photo != NULL ? ru_arena_printf(arena, "%s.cls", base) : NULL;
        (void)snprintf(label, sizeof label, "%d", (int)(k % 10));
        RU_TRY(cls != NULL ? rui_make_photo(photo, (uint64_t)k, err)
                           : RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full"));
        RU_TRY(ru_file_own(cls, label, (int64_t)strlen(label), err));
        ru_arena_rewind(arena, mark);
    }
    const ru_process_options opt = {.argv = argv};
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK : RU_FAIL(err, RU_E_PEER, "tar ended with %d", code);
}

static ru_status make_idx(const char *x, const char *y, int64_t n, ru_err *err)
{
    const uint8_t head[] = {0, 0,    8, 4, 0, 0,   (uint8_t)(n >> 8), (uint8_t)n, 0, 0, 0, 3, 0, 0,
                            0, SIDE, 0, 0, 0, SIDE};
    const uint8_t labels[] = {0, 0, 8, 1, 0, 0, (uint8_t)(n >> 8), (uint8_t)n};
    RU_TRY(rui_make_file(x, head, sizeof head, n * 3 * SIDE * SIDE, err));
    return rui_make_file(y, labels, sizeof labels, n, err);
}

static ru_status make_files(ru_bench *b, runs *r, kind k, ru_err *err)
{
    const char *at = ru_path_join(b->arena, r->dir, k == TAR ? "flat" : "photos");
    const char *made = k == IDX   ? ru_path_join(b->arena, r->dir, "x")
                       : k == TAR ? ru_path_join(b->arena, r->dir, "photos.tar")
                                  : at;
    if (ru_path_exists(made)) {
        return RU_OK;
    }
    return k == IDX   ? make_idx(made, ru_path_join(b->arena, r->dir, "y"), samples_of(k), err)
           : k == TAR ? make_tar(at, made, samples_of(k), b->arena, err)
                      : rui_make_photos(b, at, (uint32_t)samples_of(k), err);
}

ru_status rui_bench_auto(ru_bench *b, const char *dir, ru_err *err)
{
    runs *r = RU_NEW(b->arena, runs, 1);
    if (r == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
    }
    char *whole = realpath(dir, NULL); /* a job's paths may begin in the folder of its file */
    dir = whole != NULL ? ru_arena_str(b->arena, whole) : NULL;
    free(whole);
    if (dir == NULL) {
        return RU_FAIL(err, RU_E_IO, "the folder of the benchmark went away");
    }
    *r = (runs){.dir = ru_path_join(b->arena, dir, "auto"), .rubato = ru_bench_rubato(b->arena)};
    r->job = ru_path_join(b->arena, dir, "auto.yaml");
    r->run = ru_path_join(b->arena, dir, "auto-run");
    r->kept = ru_path_join(b->arena, dir, "auto-kept");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        const auto_case *c = &cases[k];
        char far[40] = "";
        if (c->mb_per_s > 0) {
            (void)snprintf(far, sizeof far, ", store of %u MB/s", c->mb_per_s);
        }
        const char *name = ru_arena_printf(b->arena, "auto: %s%s, room for %s", kinds[c->kind].name,
                                           far, c->part == 1 ? "all" : "a quarter");
        if (name == NULL || !ru_bench_wants(b, name)) {
            continue;
        }
        RU_TRY(ru_dir_make(r->dir, err));
        RU_TRY(make_files(b, r, c->kind, err));
        RU_TRY(bench_case(b, r, c, name, err));
    }
    return RU_OK;
}
