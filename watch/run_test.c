/* What a run's lines tell, as figures and over HTTP. */
#include "watch/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"
#include "trace/record/recorder.h"
#include "watch/serve.h"
#include "web/fetch.h"

static const char head[] = "{\"schema\":\"rubato.train.start/"
                           "1\",\"parameters\":1234,\"workers\":2,\"batch\":8,\"steps\":100}\n";

static void put_steps(ru_text *t, int64_t first, int64_t last)
{
    for (int64_t s = first; s <= last; s++) {
        ru_text_putf(
            t,
            "{\"schema\":\"rubato.train.step/1\",\"step\":%lld,\"epoch\":1,\"samples\":%lld,"
            "\"loss\":%g,\"lr\":0.1,\"step_s\":%g,\"samples_per_s\":80,\"workers\":2}\n",
            (long long)s, (long long)s * 8, 2.0 - 0.01 * (double)s, s % 2 == 0 ? 0.002 : 0.2);
    }
}

static void save(const char *path, const ru_text *t)
{
    ru_err err = {0};
    assert_ok(ru_file_replace(path, t->p, t->n, &err), err);
}

typedef struct rig {
    ru_scratch *s;
    const char *dir, *path;
    ru_text text;
    ru_watch *watch;
} rig;

static void set_up(rig *r, void **state)
{
    ru_err err = {0};
    r->s = *state;
    r->dir = r->s->root;
    r->path = ru_path_join(&r->s->arena, r->dir, "metrics.jsonl");
    r->text = ru_text_arena(&r->s->arena);
    assert_ok(ru_watch_open(r->dir, &r->s->arena, &r->watch, &err), err);
}

static const ru_watch_totals *look(rig *r, ru_top *view)
{
    ru_err err = {0};
    assert_ok(ru_watch_look(r->watch, &r->s->arena, view, &err), err);
    return ru_watch_totals_get(r->watch);
}

static const char *line_of(const char *text, const char *name)
{
    char key[128];
    snprintf(key, sizeof key, "\n%s ", name);
    const char *at = strstr(text, key);
    assert_non_null(at);
    return at + strlen(key);
}

/* Lines that come later, a file that another leader continues, and half a line. */
static void test_totals(void **state)
{
    rig r;
    ru_top view;
    set_up(&r, state);
    assert_ok(ru_dir_make(ru_path_join(&r.s->arena, r.dir, "trace"), &r.s->err), r.s->err);
    const ru_watch_totals *t = look(&r, &view); /* no file yet */
    assert_int_equal(t->steps, 0);
    assert_true(isnan(t->loss));
    ru_text_put(&r.text, head);
    put_steps(&r.text, 1, 10);
    ru_text_put(&r.text,
                "{\"schema\":\"rubato.train.event/1\",\"step\":10,\"what\":\"checkpoint\"}\n");
    ru_text_put(&r.text, "{\"schema\":\"rubato.train.st"); /* the rest comes later */
    save(r.path, &r.text);
    t = look(&r, &view);
    assert_int_equal(t->steps, 10);
    assert_int_equal(t->samples, 80);
    assert_int_equal(view.steps, 100);
    assert_int_equal(t->step_ns.n, 10);
    assert_int_equal(t->n_events, 1);
    assert_int_equal(t->event[0].count, 1);
    assert_int_equal(t->workers, 2);
    r.text.n -= (int64_t)strlen("{\"schema\":\"rubato.train.st");
    put_steps(&r.text, 11, 12);
    ru_text_put(&r.text, "no JSON\n[]\n{\"schema\":7}\n");
    ru_text_put(
        &r.text,
        "{\"schema\":\"rubato.train.event/1\",\"step\":12,\"what\":\"lost\",\"worker\":2}\n");
    ru_text_put(&r.text,
                "{\"schema\":\"rubato.train.eval/1\",\"step\":12,\"metric\":{\"accuracy\":0.5}}\n");
    ru_text_put(&r.text, "{\"schema\":\"rubato.train.summary/1\",\"samples_lost\":3,"
                         "\"samples_repeated\":4,\"ended\":\"done\"}\n");
    save(r.path, &r.text); /* a new inode: nothing counts twice */
    t = look(&r, &view);
    assert_int_equal(t->steps, 12);
    assert_int_equal(t->step_ns.n, 12);
    assert_int_equal(t->n_events, 2);
    assert_int_equal(t->event[0].count, 1);
    assert_int_equal(view.n_events, 2);
    assert_string_equal(view.events[1], "step 12: lost, worker 2");
    assert_int_equal(t->lost, 3);
    assert_int_equal(t->repeated, 4);
    assert_string_equal(view.ended, "done");
}

/* Steps of 10 ms; rank k begins the sum of each after begin_ns, and all have it after 9 ms. */
static void record_steps(const char *dir, uint32_t k, int64_t begin_ns, int64_t at_ns)
{
    enum { MS = 1000000, STEPS = 20 };
    ru_err err = {0};
    ru_recorder *r;
    const ru_recorder_options opt = {.dir = dir, .rank = k};
    assert_ok(ru_recorder_open(&opt, &r, &err), err);
    uint16_t step = ru_recorder_name(r, "step", "train"), op = ru_recorder_name(r, "Gemm", "op"),
             sum = ru_recorder_name(r, "sums of gradients", "train");
    for (uint32_t s = 0; s < STEPS; s++, at_ns += 10 * MS) {
        const ru_rec_flow f = {.kind = RU_REC_SUM,
                               .name = sum,
                               .flow = 7 + s,
                               .start_ns = at_ns + begin_ns,
                               .end_ns = at_ns + 9 * MS,
                               .bytes = 100000,
                               .step = s};
        ru_rec_span(r, op, at_ns, at_ns + begin_ns, 0);
        ru_rec_flows(r, &f);
        ru_rec_wait(r, sum, at_ns + begin_ns, at_ns + 9 * MS, sum);
        ru_rec_span(r, step, at_ns, at_ns + 10 * MS, s + 1);
    }
    ru_recorder_close(r);
}

static void about_ms(double is_s, double ms)
{
    assert_true(fabs(1e3 * is_s - ms) < 0.5);
}

/* Rank 0 waits for both others in turn, rank 1 for the last one, and nobody for rank 0. */
static void test_waits(void **state)
{
    static const int64_t begins[] = {2000000, 5000000, 8000000};
    rig r;
    ru_top view;
    set_up(&r, state);
    const char *dir = ru_path_join(&r.s->arena, r.dir, "trace");
    assert_ok(ru_dir_make(dir, &r.s->err), r.s->err);
    int64_t at_ns = ru_rec_now() - 300000000;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(begins); k++) {
        record_steps(dir, k, begins[k], at_ns);
    }
    (void)look(&r, &view);
    assert_int_equal(view.n, RU_ARRAY_LEN(begins));
    about_ms(view.ranks[0].waited_s, 6);
    about_ms(view.ranks[1].waited_s, 3);
    about_ms(view.ranks[2].waited_s, 0);
    about_ms(view.ranks[0].awaited_s, 0);
    about_ms(view.ranks[1].awaited_s, 0);
    about_ms(view.ranks[2].awaited_s, 6);
    /* What the job says of a rank: it is lost, it left, it is back. */
    static const char *const whats[] = {"lost", "leave", "join"};
    static const char *const want[] = {"lost", "left", NULL};
    for (uint32_t k = 0; k < 3; k++) {
        ru_text_putf(&r.text,
                     "{\"schema\":\"rubato.train.event/1\",\"step\":3,\"what\":\"%s\","
                     "\"worker\":2}\n",
                     whats[k]);
        save(r.path, &r.text);
        (void)look(&r, &view);
        assert_null(view.ranks[1].gone);
        assert_true(want[k] == NULL ? view.ranks[2].gone == NULL
                                    : strcmp(view.ranks[2].gone, want[k]) == 0);
    }
}

static void save_text(const rig *r, const char *name, const char *text)
{
    ru_text t = ru_text_arena(&r->s->arena);
    ru_text_put(&t, text);
    save(ru_path_join(&r->s->arena, r->dir, name), &t);
}

/* Before the first round, and while none goes on. */
static void test_clients(void **state)
{
    rig r;
    ru_top view;
    set_up(&r, state);
    save_text(&r, "metrics.jsonl", "");
    save_text(&r, "federation.jsonl",
              "{\"schema\":\"rubato.fed.clients/1\",\"round\":0,\"there\":6,\"resting\":3}\n");
    ru_text out = ru_text_arena(&r.s->arena);
    ru_watch_prometheus(look(&r, &view), &view, &out);
    assert_memory_equal(line_of(out.p, "rubato_federation_here_clients"), "6\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_federation_resting_clients"), "3\n", 2);
    assert_null(strstr(out.p, "rubato_federation_answers"));
}

/* Workers and money of a training on functions; clients of a round that had no answer. */
static void test_functions(void **state)
{
    rig r;
    ru_top view;
    set_up(&r, state);
    save_text(&r, "metrics.jsonl", "");
    save_text(&r, "functions.jsonl",
              "{\"schema\":\"rubato.functions/1\",\"workers\":2,\"memory_mb\":442,"
              "\"measures\":true,\"usd\":0.5,\"calls\":8,\"given_up\":1}\n");
    save_text(&r, "federation.jsonl",
              "{\"schema\":\"rubato.fed.round/1\",\"round\":10,\"sent\":5,\"answers\":1,\"late\":1,"
              "\"lost\":3,\"there\":7}\n");
    ru_text out = ru_text_arena(&r.s->arena);
    ru_watch_prometheus(look(&r, &view), &view, &out);
    assert_memory_equal(line_of(out.p, "rubato_federation_late_clients"), "1\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_federation_lost_clients"), "3\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_functions_workers"), "2\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_functions_measuring"), "1\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_functions_spent_dollars_total"), "0.5\n", 4);
}

static void test_prometheus(void **state)
{
    rig r;
    ru_top view;
    set_up(&r, state);
    (void)look(&r, &view);
    ru_text_put(&r.text, head);
    put_steps(&r.text, 1, 10);
    ru_text_put(&r.text,
                "{\"schema\":\"rubato.train.event/1\",\"step\":3,\"what\":\"a\\\"b\\\\\\n\"}\n");
    save(r.path, &r.text);
    assert_ok(ru_dir_make(ru_path_join(&r.s->arena, r.dir, "plans"), &r.s->err), r.s->err);
    save_text(&r, "plans/measured.jsonl",
              "{\"schema\":\"rubato.measured/1\",\"policy\":\"share\",\"figure\":"
              "\"step_s\",\"predicted\":9,\"measured\":1}\n"
              "{\"schema\":\"rubato.measured/1\",\"policy\":\"share\",\"figure\":"
              "\"step_s\",\"predicted\":2,\"measured\":4}\n"
              "{\"schema\":\"rubato.measured/1\",\"policy\":\"sums\",\"figure\":"
              "\"buckets\",\"measured\":4}\n");
    save_text(&r, "federation.jsonl",
              "{\"schema\":\"rubato.fed.round/1\",\"round\":10,\"sent\":5,\"answers\":4,"
              "\"there\":7,\"resting\":2,\"epsilon\":1.25}\n");
    save_text(&r, "follow.jsonl",
              "{\"schema\":\"rubato.follow/1\",\"arrived\":900,\"queue\":60,\"workers\":3}\n");
    const ru_watch_totals *t = look(&r, &view);
    ru_top_rank ranks[RU_WATCH_RANKS + 1] = {
        {.rank = 0, .step = 10, .part = {0.5, 0.25, 0.25}, .waited_s = 0.125, .awaited_s = 0.5}};
    view.predictors[0] = (ru_predictor_error){
        .predictor = "coll", .n = 4, .median = 0.25, .p95 = 2, .late_s = -0.5, .late95_s = 0.75};
    view.n_predictors = 1;
    view.ranks = ranks;
    view.n = RU_WATCH_RANKS + 1;
    ru_text out = ru_text_arena(&r.s->arena);
    ru_watch_prometheus(t, &view, &out);
    assert_memory_equal(line_of(out.p, "rubato_train_samples_total"), "80\n", 3);
    assert_memory_equal(line_of(out.p, "rubato_train_loss"), "1.9\n", 4);
    assert_memory_equal(line_of(out.p, "rubato_federation_answers"), "4\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_federation_epsilon"), "1.25\n", 5);
    assert_memory_equal(line_of(out.p, "rubato_follow_queue_samples"), "60\n", 3);
    assert_memory_equal(line_of(out.p, "rubato_follow_workers"), "3\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_train_step_duration_seconds_count"), "10\n", 3);
    assert_memory_equal(line_of(out.p, "rubato_train_step_duration_seconds_bucket{le=\"0.001\"}"),
                        "0\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_train_step_duration_seconds_bucket{le=\"0.0025\"}"),
                        "5\n", 2);
    assert_memory_equal(line_of(out.p, "rubato_train_step_duration_seconds_bucket{le=\"0.25\"}"),
                        "10\n", 3);
    assert_memory_equal(line_of(out.p, "rubato_train_step_duration_seconds_bucket{le=\"+Inf\"}"),
                        "10\n", 3);
    assert_memory_equal(line_of(out.p, "rubato_train_step_duration_seconds_sum"), "1.01\n", 5);
    assert_memory_equal(line_of(out.p, "rubato_worker_time_ratio{rank=\"0\",part=\"compute\"}"),
                        "0.5\n", 4);
    assert_memory_equal(line_of(out.p, "rubato_worker_barrier_wait_seconds{rank=\"0\"}"), "0.125\n",
                        6);
    assert_memory_equal(line_of(out.p, "rubato_worker_awaited_seconds{rank=\"0\"}"), "0.5\n", 4);
    assert_memory_equal(
        line_of(out.p, "rubato_predictor_lateness_seconds{predictor=\"coll\",percentile=\"50\"}"),
        "-0.5\n", 5);
    assert_memory_equal(
        line_of(out.p, "rubato_predictor_error_ratio{predictor=\"coll\",percentile=\"95\"}"), "2\n",
        2);
    assert_memory_equal(
        line_of(out.p, "rubato_plan_error_ratio{policy=\"share\",figure=\"step_s\"}"), "-0.5\n", 5);
    assert_null(strstr(out.p, "figure=\"buckets\"")); /* not predicted */
    assert_non_null(strstr(out.p, "rubato_train_events_total{event=\"a\\\"b\\\\\\n\"} 1\n"));
    assert_null(strstr(out.p, "rubato_train_accuracy_ratio")); /* not told */
    assert_int_equal(out.p[out.n - 1], '\n');
    uint32_t of_ranks = 0;
    for (const char *p = out.p; (p = strstr(p, "rubato_worker_step{")) != NULL; p++) {
        of_ranks++;
    }
    assert_int_equal(of_ranks, RU_WATCH_RANKS);
}

static void test_json(void **state)
{
    (void)state;
    ru_arena arena = {0};
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    const ru_top_rank rank = {.rank = 3,
                              .step = 7,
                              .steps_per_s = 2.5,
                              .part = {0.5, 0.5},
                              .sent_per_s = {1, 2, 3, 4},
                              .quiet_s = 0.25};
    const ru_top t = {.name = "runs/a",
                      .step = 7,
                      .steps = 9,
                      .loss = 0.5,
                      .samples_per_s = 100,
                      .left_s = -1,
                      .round = {5, 4, 7, 2, 1.25, 0, 0},
                      .ranks = &rank,
                      .n = 1,
                      .events = {"one\x1b[2J"},
                      .n_events = 1,
                      .causes = {"rank 3 is slow"},
                      .n_causes = 1};
    ru_text text = ru_text_arena(&arena);
    assert_ok(ru_top_json(&t, &text, &err), err);
    ru_top back;
    assert_ok(ru_top_read(text.p, text.n, &arena, &back, &err), err);
    assert_string_equal(back.name, "runs/a");
    assert_int_equal(back.n, 1);
    assert_memory_equal(back.ranks, &rank, sizeof rank);
    assert_memory_equal(&back.round, &t.round, sizeof t.round);
    ru_text drawn = ru_text_arena(&arena);
    ru_top_draw(&back, 24, 80, &drawn);
    assert_non_null(strstr(
        drawn.p, "last round: 4 of 5 clients in time, 7 are here, 2 out of hours, epsilon 1.25\n"));
    back.round.asked = 0; /* no round is merged */
    drawn = ru_text_arena(&arena);
    ru_top_draw(&back, 24, 80, &drawn);
    assert_non_null(strstr(drawn.p, "no round yet: 7 clients are here, 2 out of hours\n"));
    assert_string_equal(back.events[0], "one?[2J");
    assert_string_equal(back.causes[0], "rank 3 is slow");
    assert_null(back.ended);
    assert_true(back.left_s < 0 && back.step == 7 && back.steps == 9);
    for (int64_t n = 0; n < text.n; n++) {
        assert_int_equal(ru_top_read(text.p, n, &arena, &back, &err), RU_E_DATA);
    }
    static const char odd[] = "{\"schema\":\"rubato.top/1\",\"ranks\":[1,null,{\"step\":\"x\"}]}";
    assert_ok(ru_top_read(odd, (int64_t)strlen(odd), &arena, &back, &err), err);
    assert_int_equal(back.n, 3);
    ru_arena_fini(&arena);
}

static void test_http(void **state)
{
    rig r;
    ru_err err = {0};
    ru_watch_serve *s;
    char *text;
    int64_t n;
    set_up(&r, state);
    ru_text_put(&r.text, head);
    put_steps(&r.text, 1, 3);
    save(r.path, &r.text);
    ru_status st = ru_watch_serve_start(r.dir, "0", "0123456789abcdef", &s, &err);
    if (st == RU_E_UNSUPPORTED) {
        skip(); /* no libmicrohttpd */
    }
    assert_ok(st, err);
    assert_int_equal(strncmp(ru_watch_serve_address(s), "127.0.0.1:", 10), 0);
    ru_fetch g = {.token = "0123456789abcdef"};
    g.url = ru_arena_printf(&r.s->arena, "http://%s/metrics", ru_watch_serve_address(s));
    st = ru_http_fetch(&g, &r.s->arena, &text, &n, &err);
    if (st != RU_E_UNSUPPORTED) {
        assert_ok(st, err);
        assert_memory_equal(line_of(text, "rubato_train_steps_total"), "3\n", 2);
        static const char *const wrong[] = {NULL, "0123456789abcdeF", "0123456789abcde", "x", ""};
        for (uint32_t k = 0; k < RU_ARRAY_LEN(wrong); k++) {
            g.token = wrong[k];
            assert_int_equal(ru_http_fetch(&g, &r.s->arena, &text, &n, &err), RU_E_PERM);
        }
        g.token = "0123456789abcdef";
        g.url = ru_arena_printf(&r.s->arena, "http://%s/top", ru_watch_serve_address(s));
        assert_ok(ru_http_fetch(&g, &r.s->arena, &text, &n, &err), err);
        ru_top view;
        assert_ok(ru_top_read(text, n, &r.s->arena, &view, &err), err);
        assert_int_equal(view.step, 3);
        g.bytes_max = 10;
        assert_int_equal(ru_http_fetch(&g, &r.s->arena, &text, &n, &err), RU_E_LIMIT);
        g.bytes_max = 0;
        g.url = ru_arena_printf(&r.s->arena, "http://%s/", ru_watch_serve_address(s));
        assert_int_equal(ru_http_fetch(&g, &r.s->arena, &text, &n, &err), RU_E_MISSING);
    }
    ru_watch_serve *other;
    assert_int_equal(ru_watch_serve_start(r.dir, ru_watch_serve_address(s), NULL, &other, &err),
                     RU_E_PEER);
    ru_watch_serve_stop(s);
    assert_int_equal(ru_watch_serve_start(r.dir, "nonsense", NULL, &other, &err), RU_E_USAGE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(watch_run, T(test_totals), T(test_waits), T(test_clients), T(test_functions),
         T(test_prometheus), cmocka_unit_test(test_json), T(test_http))
