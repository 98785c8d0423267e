/* rubato bench storage, its rows of stores: what later epochs fetch of data for half of which there
 * is room, beside mosaicml-streaming; the copy of a checkpoint over 1 Gbit/s, beside boto3, and
 * steps of training beside it. The store is a server of this program that is as slow as that. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/reader/range_server.h"
#include "bench/reader/reader.h"
#include "bench/reader/reader_search.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "exec/pool.h"

enum { SIDE = 362, EPOCHS = 5, WORDS = 8, STEPS_MAX = 200 };

static const int64_t patience_ns = INT64_C(600000000000);
static const double gbit = 119.5e6; /* bytes/s of payload in 1 Gbit/s of Ethernet frames */

static const char half_name[] = "store, 50 ms, 200 Mbit/s, room for half: fetched in epochs 2 to 5";
static const char copy_name[] = "copy of a checkpoint to a store over 1 Gbit/s";
static const char steps_name[] = "steps beside the copy of a checkpoint";

/* -- the other side ---------------------------------------------------------------------------- */

typedef struct peer {
    ru_bench_side side;
    const char *missing, *detail;
} peer;

static ru_status open_peer(ru_bench *b, const char *const words[], const char *missing, peer *p,
                           ru_err *err)
{
    const char *scripts = ru_bench_scripts(b->arena), **argv = RU_NEW(b->arena, const char *, 10);
    const char *line = NULL;
    *p = (peer){.missing = missing};
    if (scripts == NULL || argv == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "bench/storage_peer.py is not beside this program");
    }
    argv[0] = "python3";
    argv[1] = ru_path_join(b->arena, scripts, "storage_peer.py");
    for (uint32_t k = 0; k < WORDS && words[k] != NULL; k++) {
        argv[2 + k] = words[k];
    }
    p->side.argv = argv;
    const ru_process_options opt = {.argv = argv, .pipe_in = true, .pipe_out = true, .quiet = true};
    if (ru_process_start(&opt, &p->side.process, NULL) != RU_OK) {
        return RU_OK;
    }
    RU_TRY(ru_process_line(p->side.process, patience_ns, &line, err));
    if (line != NULL && strncmp(line, "ready ", 6) == 0) {
        p->detail = ru_arena_str(b->arena, line + 6);
        p->missing = NULL;
    }
    return RU_OK;
}

static ru_status ask_peer(peer *p, double *seconds, double *samples, ru_err *err)
{
    const char *answer;
    char *rest;
    RU_TRY(ru_bench_ask(&p->side, "go\n", &answer, err));
    *seconds = strtod(answer, &rest);
    *samples = strtod(rest, NULL);
    return *seconds > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_PEER, "storage_peer.py answered '%s', not seconds", answer);
}

/* -- data in a store, room for half of it ------------------------------------------------------ */

typedef struct half {
    const char *dir, *path, *log;
    int64_t bytes, samples;
    ru_range_server *server;
} half;

/* Bytes of files that the server sent, by its log from that place on. */
static ru_status sent(const half *h, int64_t from, ru_arena *arena, double *bytes, ru_err *err)
{
    char *text;
    int64_t n;
    static const char word[] = "\nsends: ";
    RU_TRY(ru_file_read(h->log, 0, arena, &text, &n, err));
    *bytes = 0;
    for (const char *at = text + from; (at = strstr(at, word)) != NULL;) {
        at += sizeof word - 1;
        *bytes += strtod(at, NULL);
    }
    return RU_OK;
}

/* What is fetched in epochs 2 to 5, of the data. */
static ru_status our_half(ru_bench *b, const half *h, double *part, ru_err *err)
{
    ru_dataset *d = NULL;
    int64_t from = 0;
    double rate, ms;
    const char *url =
        ru_arena_printf(b->arena, "http://127.0.0.1:%u/images", ru_range_server_port(h->server));
    const ru_disk_tier tier = {ru_path_join(b->arena, h->dir, "ours"), h->bytes / 2};
    const ru_data_options o = {.format = "idx",
                               .paths = &url,
                               .n_paths = 1,
                               .raw = true,
                               .resident_max_bytes = -1,
                               .cache = {.kind = RU_CACHE_BYTES, .tiers = &tier, .n_tiers = 1}};
    RU_TRY(ru_dataset_open(&o, &d, err));
    ru_status st = RU_OK;
    for (uint32_t e = 0; st == RU_OK && e < EPOCHS; e++) {
        st = rui_reader_epoch(d, 2, &rate, &ms, err);
        from = e == 0 ? ru_path_bytes(h->log) : from;
    }
    ru_dataset_close(d);
    RU_TRY(st);
    RU_TRY(sent(h, from, b->arena, part, err));
    *part /= (EPOCHS - 1) * (double)h->bytes;
    return RU_OK;
}

static ru_status their_half(ru_bench *b, const half *h, peer *p, double *part, ru_err *err)
{
    int64_t from = 0;
    for (uint32_t e = 0; e < EPOCHS; e++) {
        double seconds, samples;
        RU_TRY(ask_peer(p, &seconds, &samples, err));
        if (samples < (double)h->samples) {
            return RU_FAIL(err, RU_E_PEER, "the peer read %.0f of %lld samples", samples,
                           (long long)h->samples);
        }
        from = e == 0 ? ru_path_bytes(h->log) : from;
    }
    RU_TRY(sent(h, from, b->arena, part, err));
    *part /= (EPOCHS - 1) * (double)h->bytes;
    return RU_OK;
}

static ru_status both_halves(ru_bench *b, half *h, ru_err *err)
{
    peer p = {0};
    double ours = 0, theirs = 0;
    const char *const words[] = {
        "streaming", ru_arena_printf(b->arena, "%u", ru_range_server_port(h->server)),
        h->dir,      h->path,
        "362",       ru_arena_printf(b->arena, "%lld", (long long)h->bytes / 2),
        NULL};
    RU_TRY(our_half(b, h, &ours, err));
    ru_status st = open_peer(
        b, words, "mosaicml-streaming is not installed (pip install mosaicml-streaming)", &p, err);
    st = st == RU_OK && p.missing == NULL ? their_half(b, h, &p, &theirs, err) : st;
    ru_bench_sides_end(&p.side, 1);
    RU_TRY(st);
    ru_bench_row row = {.name = half_name,
                        .unit = "of the data",
                        .lower = true,
                        .ours = ru_bench_stat_of(&ours, 1),
                        .goal = 0.52};
    RU_TRY(ru_bench_add(b, &row, err));
    row.peer = p.missing == NULL ? p.detail : "mosaicml-streaming";
    row.missing = p.missing;
    row.goal = 1;
    if (p.missing == NULL) {
        row.theirs = ru_bench_stat_of(&theirs, 1);
    }
    return ru_bench_add(b, &row, err);
}

static ru_status bench_half(ru_bench *b, const char *dir, ru_err *err)
{
    half h = {.dir = ru_path_join(b->arena, dir, "half"), .samples = b->quick ? 200 : 700};
    h.path = ru_path_join(b->arena, h.dir, "images");
    h.log = ru_path_join(b->arena, h.dir, "requests");
    h.bytes = h.samples * SIDE * SIDE;
    const ru_range_server_options so = {
        .dir = h.dir, .delay_ns = 50000000, .bytes_per_s = 25000000, .log = h.log};
    if (h.path == NULL || h.log == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
    }
    RU_TRY(ru_dir_make(h.dir, err));
    RU_TRY(rui_make_images(h.path, SIDE, h.bytes, err));
    RU_TRY(ru_range_server_open(&so, &h.server, err));
    ru_status st = ru_range_server_start(h.server, err);
    st = st == RU_OK ? both_halves(b, &h, err) : st;
    ru_range_server_close(h.server);
    return st;
}

/* -- copies of checkpoints --------------------------------------------------------------------- */

typedef struct copies {
    const char *dir, *run, *job, *rubato, *model; /* model: file of the checkpoint */
    const char *set[5];
    const char *far; /* checkpoint.copy_to=... */
    peer p;
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX];
    double beside[RU_BENCH_ROUNDS_MAX], alone[RU_BENCH_ROUNDS_MAX];
} copies;

static const char job_text[] =
    "data: {format: idx, train: [digits/train-images, digits/train-labels]}\n"
    "model: {zoo: mlp, hidden: [%d, %d]}\n"
    "train: {steps: 1, batch: 1, threads: 1, optimizer: {sgd: {lr: 0.001}}}\n"
    "checkpoint: {keep: 1, every: 2s}\n";

/* A run; *step_s: the median of its steps, *copy_s: what its last copy took, by its log. */
static ru_status train(ru_bench *b, const copies *c, bool copied, uint32_t steps, double *step_s,
                       double *copy_s, ru_err *err)
{
    static const char word[] = "is at s3://bucket/run (";
    const char *line = NULL, *said;
    double each[STEPS_MAX] = {0};
    uint32_t n = 0;
    const char *const argv[] = {"sh",
                                "-c",
                                "exec \"$@\" 2>&1",
                                "sh",
                                c->rubato,
                                "train",
                                c->job,
                                "--json",
                                "--out",
                                c->run,
                                "--set",
                                ru_arena_printf(b->arena, "train.steps=%u", steps),
                                copied ? "--set" : NULL,
                                c->far,
                                NULL};
    const ru_process_options opt = {.argv = argv, .set = c->set, .pipe_out = true};
    ru_process *p = NULL;
    if (ru_path_exists(c->run)) {
        RU_TRY(ru_path_remove(c->run, err));
    }
    *copy_s = 0;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = ru_process_line(p, patience_ns, &line, err);
    while (st == RU_OK && line != NULL) {
        json_t *root = json_loads(line, 0, NULL), *took = json_object_get(root, "step_s");
        said = strstr(line, word);
        *copy_s = said != NULL ? strtod(said + sizeof word - 1, NULL) : *copy_s;
        if (took != NULL && n < STEPS_MAX) {
            each[n++] = json_number_value(took);
        }
        json_decref(root);
        st = ru_process_line(p, patience_ns, &line, err);
    }
    int code = st == RU_OK ? ru_process_wait(p) : 0;
    ru_process_close(p);
    RU_TRY(st);
    *step_s = n > 0 ? ru_bench_stat_of(each, n).median : 0;
    return code == 0 && n == steps && (*copy_s > 0) == copied
               ? RU_OK
               : RU_FAIL(err, RU_E_PEER,
                         "rubato train ended with %d after %u of %u steps, with a copy in %.3g s",
                         code, n, steps, *copy_s);
}

static ru_status rates(ru_bench *b, copies *c, const char *port, ru_err *err)
{
    uint32_t rounds = 3;
    double unused, seconds;
    RU_TRY(train(b, c, false, 1, &unused, &seconds, err));
    const char *other = ru_arena_printf(b->arena, "%s/uploaded", c->dir);
    RU_TRY(ru_path_rename(c->model, other, err));
    const char *const moved[] = {"boto3", port, other, NULL};
    RU_TRY(open_peer(b, moved, "boto3 is not installed (pip install boto3)", &c->p, err));
    double bytes = (double)ru_path_bytes(other);
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t turn = 0; turn < 2; turn++) {
            if ((r + turn) % 2 == 0) {
                RU_TRY(train(b, c, true, 1, &unused, &seconds, err));
                c->ours[r] = 1e-6 * bytes / seconds;
            } else if (c->p.missing == NULL) {
                RU_TRY(ask_peer(&c->p, &seconds, &unused, err));
                c->theirs[r] = 1e-6 * bytes / seconds;
            }
        }
    }
    ru_bench_row row = {.name = copy_name,
                        .unit = "MB/s",
                        .ours = ru_bench_stat_of(c->ours, rounds),
                        .goal = 0.9e-6 * gbit};
    RU_TRY(ru_bench_add(b, &row, err));
    row.peer = c->p.missing == NULL ? c->p.detail : "boto3";
    row.missing = c->p.missing;
    row.goal = 1;
    if (c->p.missing == NULL) {
        row.theirs = ru_bench_stat_of(c->theirs, rounds);
    }
    return ru_bench_add(b, &row, err);
}

static ru_status steps(ru_bench *b, copies *c, ru_err *err)
{
    uint32_t rounds = 3, n = b->quick ? 50 : 30;
    double unused;
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t turn = 0; turn < 2; turn++) {
            bool copied = (r + turn) % 2 == 0;
            RU_TRY(train(b, c, copied, n, copied ? &c->beside[r] : &c->alone[r], &unused, err));
        }
    }
    for (uint32_t r = 0; r < rounds; r++) {
        c->beside[r] *= 1e3;
        c->alone[r] *= 1e3;
    }
    const ru_bench_row row = {.name = steps_name,
                              .unit = "ms",
                              .lower = true,
                              .ours = ru_bench_stat_of(c->beside, rounds),
                              .theirs = ru_bench_stat_of(c->alone, rounds),
                              .peer = "without copies",
                              .goal = 1 / 1.01};
    return ru_bench_add(b, &row, err);
}

static ru_status both_copies(ru_bench *b, copies *c, const ru_range_server *server, ru_err *err)
{
    const char *port = ru_arena_printf(b->arena, "%u", ru_range_server_port(server));
    c->set[0] = "AWS_ACCESS_KEY_ID=someone";
    c->set[1] = "AWS_SECRET_ACCESS_KEY=something";
    c->set[2] = ru_arena_printf(b->arena, "AWS_ENDPOINT_URL=http://127.0.0.1:%s", port);
    c->set[3] = "NO_PROXY=127.0.0.1";
    c->far = "checkpoint.copy_to=s3://bucket/run";
    RU_TRY(ru_bench_wants(b, copy_name) ? rates(b, c, port, err) : RU_OK);
    return ru_bench_wants(b, steps_name) ? steps(b, c, err) : RU_OK;
}

static ru_status bench_copies(ru_bench *b, const char *dir, ru_err *err)
{
    int hidden = b->quick ? 4800 : 15430; /* 107 MB, 1 GB */
    ru_range_server *server = NULL;
    copies *c = RU_NEW(b->arena, copies, 1);
    const char *text = ru_arena_printf(b->arena, job_text, hidden, hidden);
    const ru_range_server_options so = {.dir = dir, .bytes_per_s = (int64_t)gbit, .takes = true};
    if (c == NULL || text == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
    }
    c->dir = ru_path_join(b->arena, dir, "copies");
    c->run = ru_path_join(b->arena, c->dir, "run");
    c->job = ru_path_join(b->arena, c->dir, "job.yaml");
    c->model = ru_path_join(b->arena, c->run, "checkpoints/000000001/model.safetensors");
    c->rubato = ru_bench_rubato(b->arena);
    RU_TRY(ru_dir_make(c->dir, err));
    const char *const argv[] = {
        c->rubato, "data", "make",   "digits", "--out", ru_path_join(b->arena, c->dir, "digits"),
        "--count", "640",  "--test", "20",     NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    if (code != 0) {
        return RU_FAIL(err, RU_E_PEER, "rubato data make ended with %d", code);
    }
    RU_TRY(ru_file_own(c->job, text, (int64_t)strlen(text), err));
    RU_TRY(ru_range_server_open(&so, &server, err));
    ru_status st = ru_range_server_start(server, err);
    st = st == RU_OK ? both_copies(b, c, server, err) : st;
    ru_bench_sides_end(&c->p.side, 1);
    ru_range_server_close(server);
    return st;
}

ru_status rui_bench_far(ru_bench *b, const char *dir, ru_err *err)
{
    bool copied = ru_bench_wants(b, copy_name) || ru_bench_wants(b, steps_name);
    RU_TRY(ru_bench_wants(b, half_name) ? bench_half(b, dir, err) : RU_OK);
    return copied ? bench_copies(b, dir, err) : RU_OK;
}
