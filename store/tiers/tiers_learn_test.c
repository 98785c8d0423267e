/* Files of groups are placed by what came of earlier ones, in this process and in later ones. */
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "env/thread.h"
#include "solve/solver.h"
#include "store/tiers/tiers_impl.h"
#include "test/scratch.h"
#include "test/test.h"

enum { BUSY = 40000, QUIET = 90000, FAST = 1 << 20, SLOW = 1 << 30, TRIES = 20000 };

static ru_tiers *open_space(ru_scratch *f, const char *fast, bool reads)
{
    ru_tiers *t;
    const ru_disk_tier tiers[2] = {{ru_path_join(&f->arena, f->root, fast), FAST},
                                   {ru_path_join(&f->arena, f->root, "slow"), SLOW}};
    const ru_tiers_options o = {.tiers = tiers, .n_tiers = 2, .space = "test", .reads = reads};
    assert_ok(ru_tiers_open(&o, &t, &f->err), f->err);
    return t;
}

/* A file is written and stands there. Those of the group `busy` are read at random places, those of
 * `quiet` from the beginning to the end. */
static ru_tier_entry make(ru_scratch *f, ru_tiers *t, bool busy, bool told)
{
    static uint8_t data[QUIET];
    ru_tier_file *file;
    ru_tier_entry e = {0};
    int64_t n = busy ? BUSY : QUIET;
    const ru_tier_hint hint = {.group = busy ? "busy" : "quiet",
                               .expected_bytes = told ? n : 0,
                               .input_bytes = 100000,
                               .writers = 4};
    assert_ok(ru_tier_create(t, "a", &hint, &file, &f->err), f->err);
    assert_ok(ru_tier_write(file, data, n, &f->err), f->err);
    assert_ok(ru_tier_commit(file, &f->err), f->err);
    ru_tier_close(file);
    assert_ok(ru_tier_open(t, "a", &file, &f->err), f->err);
    for (int64_t k = 0; busy && k < 50; k++) {
        assert_ok(ru_tier_read(file, k * 7919 % (n - 100), data, 100, &f->err), f->err);
    }
    for (int64_t at = 0; !busy && at < n; at += QUIET / 150) { /* less than a KiB at a time */
        assert_ok(ru_tier_read(file, at, data, QUIET / 150, &f->err), f->err);
    }
    ru_tier_close(file);
    uint32_t at = 0;
    assert_ok(ru_tiers_look(t, &f->err), f->err);
    assert_true(ru_tiers_next(t, &at, &e));
    assert_string_equal(e.group, hint.group);
    return e;
}

static ru_tier_entry make_and_remove(ru_scratch *f, ru_tiers *t, bool busy, bool told)
{
    ru_tier_entry e = make(f, t, busy, told);
    assert_ok(ru_tier_remove(t, "a", &f->err), f->err);
    return e;
}

/* Until trees decide. The order is drawn: nothing else than the group tells files apart. */
static void wait_for_trees(ru_scratch *f, ru_tiers *t, ru_rng *r)
{
    uint32_t k = 0;
    while (make_and_remove(f, t, ru_rng_below(r, 2) == 0, ru_rng_below(r, 2) == 0).told.by !=
           RU_TIER_BY_TREES) {
        assert_true(k++ < TRIES);
    }
}

static void count(ru_tiers *t, uint32_t *n, double *usd)
{
    const char *group;
    ru_tier_told told;
    *n = 0;
    *usd = 0;
    assert_int_equal(ru_tiers_look(t, NULL), RU_OK);
    for (uint32_t at = 0; ru_tiers_ended(t, &at, &group, &told); ++*n) {
        bool busy = strcmp(group, "busy") == 0;
        assert_true(told.size_bytes == (busy ? BUSY : QUIET));
        assert_true(busy ? told.ops > 49 && told.ops < 51 : told.ops > 0.17 && told.ops < 0.18);
        assert_true(told.fast_bytes == 0 || (told.measured_usd > 0) == busy);
        *usd += told.measured_usd;
    }
}

static void test_learns(void **state)
{
    ru_scratch *f = *state;
    ru_tiers *t = open_space(f, "fast", false);
    ru_rng r = ru_rng_from(7, 1);
    uint32_t n, later;
    double usd, then;
    for (uint32_t k = 0; k < 48; k++) {
        ru_tier_told told = make_and_remove(f, t, ru_rng_below(&r, 2) == 0, false).told;
        assert_int_equal(told.by, ru_solver_has_trees() ? RU_TIER_BY_YOUNG : RU_TIER_BY_MISSING);
        assert_true(told.plan == 0);
    }
    count(t, &n, &usd);
    assert_int_equal(n, 48);
    assert_true(usd > 0);
    for (uint32_t again = 0; again < 2 && ru_solver_has_trees(); again++) {
        wait_for_trees(f, t, &r);
        for (uint32_t k = 0; k < 8; k++) {
            bool busy = k % 2 == 0, told = k % 4 < 2;
            ru_tier_entry e = make_and_remove(f, t, busy, told);
            assert_int_equal(e.told.by, RU_TIER_BY_TREES);
            assert_true(e.told.plan != 0);
            if (told || !busy) { /* files below 1 MiB are alike unless their size is told */
                assert_true((e.told.expected_usd > 0) == busy);
                assert_int_equal(e.in_bytes[0], busy ? BUSY : 0);
            }
        }
        count(t, &n, &usd);
        ru_tiers_close(t); /* the next process knows them */
        t = open_space(f, "fast", false);
        count(t, &later, &then);
        assert_true(later == n && then == usd);
    }
    ru_tiers_close(t);
}

/* Readers of a file that another process removes; what stands there; a first tier that is lost. */
static void test_together(void **state)
{
    ru_scratch *f = *state;
    ru_tiers *a = open_space(f, "fast", false), *b = open_space(f, "fast", false);
    uint32_t n;
    double usd;
    (void)make(f, a, true, true);
    assert_ok(ru_tier_remove(b, "a", &f->err), f->err);
    count(b, &n, &usd);
    assert_int_equal(n, 1);
    ru_tiers_close(a);
    (void)make(f, b, true, true);
    ru_tiers_close(b);
    b = open_space(f, "fast", false);
    uint32_t at = 0;
    ru_tier_entry e;
    assert_true(ru_tiers_next(b, &at, &e));
    assert_string_equal(e.group, "busy");
    assert_true(e.told.ops > 45 && e.told.input_bytes > 0 && e.told.open_s > 1e9);
    assert_ok(ru_tier_remove(b, "a", &f->err), f->err);
    count(b, &n, &usd);
    assert_int_equal(n, 2);
    ru_tiers_close(b);
    assert_ok(ru_file_own(ru_path_join(&f->arena, f->root, "file"), "x", 1, &f->err), f->err);
    a = open_space(f, "file", false);
    e = make_and_remove(f, a, true, true);
    assert_true(e.told.by == RU_TIER_BY_ROOM && e.in_bytes[1] == BUSY);
    ru_tiers_close(a);
}

/* A solver that waits for the test, and then fails if the test says so. */
static ru_mutex gate; /* zeroed: a valid one */
static ru_flag broken;

static ru_status gated_trees(const ru_trees_in *in, ru_arena *out, ru_trees *trees, ru_err *err)
{
    ru_mutex_lock(&gate);
    ru_mutex_unlock(&gate);
    return ru_flag_get(&broken) == 0 ? ru_solver_library.trees(in, out, trees, err)
                                     : RU_FAIL(err, RU_E_BUG, "no trees today");
}

/* Files until `by` decides; others may before: those of `meanwhile`. */
static void until(ru_scratch *f, ru_tiers *t, ru_tier_by by, ru_tier_by meanwhile)
{
    for (uint32_t k = 0, is; (is = make_and_remove(f, t, k % 2 == 0, true).told.by) != by; k++) {
        assert_true(k < TRIES && (is == meanwhile || is == RU_TIER_BY_TRAINING));
    }
}

static void test_late_and_failed(void **state)
{
    static const ru_solver gated = {.name = "gated", .trees = gated_trees};
    ru_scratch *f = *state;
    ru_tiers *t = open_space(f, "fast", false), *other;
    t->solver = &gated;
    ru_flag_set(&broken, 1);
    ru_mutex_lock(&gate);
    for (uint32_t k = 0; k < 51 && ru_solver_has_trees(); k++) {
        ru_tier_told told = make_and_remove(f, t, k % 2 == 0, true).told;
        assert_int_equal(told.by, k < 50 ? RU_TIER_BY_YOUNG : RU_TIER_BY_TRAINING);
    }
    if (ru_solver_has_trees()) {
        t->late_ns = -1;
        until(f, t, RU_TIER_BY_LATE, RU_TIER_BY_LATE);
        ru_mutex_unlock(&gate);
        until(f, t, RU_TIER_BY_FAILED, RU_TIER_BY_LATE);
        ru_flag_set(&broken, 0);
        t->late_ns = INT64_MAX;
        until(f, t, RU_TIER_BY_TREES, RU_TIER_BY_FAILED);
        ru_flag_set(&broken, 1); /* forests that are there already are not used then */
        for (uint32_t k = 0; make_and_remove(f, t, k % 2 == 0, true).told.by != RU_TIER_BY_FAILED;
             k++) {
            assert_true(k < TRIES);
        }
        for (uint32_t k = 0; k < 2; k++) { /* a log is put together: all is read anew */
            other = open_space(f, "fast", false);
            ru_tiers_close(other);
            assert_ok(ru_tiers_look(t, &f->err), f->err);
        }
        assert_int_equal(make_and_remove(f, t, true, true).told.by, RU_TIER_BY_FAILED);
        ru_mutex_lock(&gate);
        until(f, t, RU_TIER_BY_TRAINING, RU_TIER_BY_FAILED);
    }
    ru_mutex_unlock(&gate);
    ru_tiers_close(t); /* while it trains */
}

/* More files than a map keeps end, records that are none, a reader before the writer. */
static void test_records(void **state)
{
    static const ru_solver gated = {.name = "gated", .trees = gated_trees};
    enum { MANY = 9000 };
    ru_scratch *f = *state;
    ru_tiers *t = open_space(f, "fast", false);
    ru_tier_told told = {.open_s = 1e9, .size_bytes = QUIET, .by = RU_TIER_BY_YOUNG}, last = {0};
    ru_tier_file *file;
    ru_tier_entry e;
    const char *group;
    uint32_t at = 0, n = 0;
    t->solver = &gated;
    t->late_ns = INT64_MAX;
    ru_flag_set(&broken, 1);
    ru_mutex_lock(&gate);
    for (uint32_t k = 0; k < MANY; k++) {
        if (k == 8000) { /* what ended until then is known when the first ones make room */
            (void)make_and_remove(f, t, true, true);
        }
        told.life_s = k;
        told.serial = k + 1;
        assert_ok(rui_tiers_append_told(t, RUI_TIER_ENDED, &told, "many", &f->err), f->err);
    }
    told.fast_bytes = QUIET + 1;
    assert_ok(rui_tiers_append_told(t, RUI_TIER_ENDED, &told, "none", &f->err), f->err);
    told.fast_bytes = 0;
    told.by = RU_TIER_BYS;
    assert_ok(rui_tiers_append_told(t, RUI_TIER_ENDED, &told, "none", &f->err), f->err);
    assert_int_equal(make_and_remove(f, t, true, true).told.by,
                     ru_solver_has_trees() ? RU_TIER_BY_TRAINING : RU_TIER_BY_MISSING);
    assert_ok(ru_tiers_look(t, &f->err), f->err);
    for (; ru_tiers_ended(t, &at, &group, &last); n++) {
        assert_string_not_equal(group, "none");
        assert_true(strcmp(group, "many") != 0 || last.life_s >= MANY - 8192);
    }
    assert_true(n >= 4096 && n <= 8192);
    assert_ok(ru_tier_create(t, "b", &(ru_tier_hint){.group = "late"}, &file, &f->err), f->err);
    const ru_tier_told read = {.writer = t->id, .serial = t->files, .ops = 7};
    assert_ok(rui_tiers_append_told(t, RUI_TIER_READ, &read, "", &f->err), f->err);
    assert_ok(ru_tiers_look(t, &f->err), f->err);
    assert_ok(ru_tier_commit(file, &f->err), f->err);
    ru_tier_close(file);
    at = 0;
    assert_ok(ru_tiers_look(t, &f->err), f->err);
    assert_true(ru_tiers_next(t, &at, &e));
    assert_string_equal(e.group, "late");
    assert_true(e.told.ops >= 7 && e.told.ops <= 7);
    ru_mutex_unlock(&gate);
    ru_tiers_close(t);
}

static void test_mistakes(void **state)
{
    ru_scratch *f = *state;
    ru_tiers *t = open_space(f, "fast", false);
    static const ru_tier_hint bad[] = {{.input_bytes = -1}, {.life_s = -1}, {.life_s = RU_NAN}};
    ru_tier_file *file;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(ru_tier_create(t, "a", &bad[k], &file, &f->err), RU_E_ARG);
    }
    char group[300];
    memset(group, 'a', sizeof group);
    group[sizeof group - 1] = '\0';
    assert_int_equal(ru_tier_create(t, "a", &(ru_tier_hint){.group = group}, &file, &f->err),
                     RU_E_ARG);
    group[RU_TIER_NAME_MAX] = '\0';
    assert_ok(ru_tier_create(t, "a", &(ru_tier_hint){.group = group}, &file, &f->err), f->err);
    ru_tier_close(file);
    ru_tiers_close(t);
}

/* The process that puts logs together is killed at its k-th call: what ended has ended once. */
static void test_ended_once(void **state)
{
    enum { N = 3 };
    ru_scratch *f = *state;
    ru_err err = {0};
    bool whole = false;
    for (uint32_t k = 0; k < N; k++) {
        ru_tiers *t = open_space(f, "fast", false);
        (void)make_and_remove(f, t, true, true);
        ru_tiers_close(t);
    }
    for (int64_t at = 0; !whole; at++) {
        ru_tier_told told;
        uint32_t n = 0;
        const char *group;
        int how;
        pid_t pid = fork();
        assert_true(pid >= 0 && at < 2000);
        if (pid == 0) {
            ru_test_os_die(at);
            ru_tiers_close(open_space(f, "fast", false));
            _exit(7);
        }
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_true(WIFEXITED(how) && (WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 7));
        whole = WEXITSTATUS(how) == 7;
        ru_tiers *t = open_space(f, "fast", true);
        assert_ok(ru_tiers_look(t, &err), err);
        while (ru_tiers_ended(t, &n, &group, &told)) {
        }
        assert_int_equal(n, N);
        ru_tiers_close(t);
        ru_tiers_close(open_space(f, "fast", false)); /* what this one left goes */
    }
}

/* Reads 50 times a file that is there. */
static void read_again(ru_scratch *f, ru_tiers *t)
{
    ru_tier_file *file;
    uint8_t data[100];
    assert_ok(ru_tier_open(t, "a", &file, &f->err), f->err);
    for (int64_t k = 0; k < 50; k++) {
        assert_ok(ru_tier_read(file, k * 7919 % (BUSY - 100), data, 100, &f->err), f->err);
    }
    ru_tier_close(file);
}

static double ops_of(ru_scratch *f)
{
    ru_tiers *t = open_space(f, "fast", true);
    ru_tier_entry e;
    uint32_t at = 0;
    assert_ok(ru_tiers_look(t, &f->err), f->err);
    assert_true(ru_tiers_next(t, &at, &e));
    ru_tiers_close(t);
    return e.told.ops;
}

/* The process that puts logs together ends at its k-th call, or that call fails: operations on a
 * file that stays are counted once, those in the log of a reader that lives among them. */
static void test_ops_once(void **state)
{
    ru_scratch *f = *state;
    for (uint32_t way = 0; way < 4; way++) {
        bool dies = way % 2 == 0, beside = way >= 2, whole = false;
        ru_tiers *t = open_space(f, "fast", false), *lives = NULL;
        (void)make(f, t, true, true);
        ru_tiers_close(t);
        const double each = ops_of(f); /* it was read once */
        double ops = beside ? 2 * each : each;
        assert_true(each > 48 && each < 51);
        if (beside) {
            lives = open_space(f, "fast", false);
            read_again(f, lives);
        }
        for (int64_t at = 0; !whole; at++) {
            int how;
            t = open_space(f, "fast", false); /* a log to put together */
            read_again(f, t);
            ru_tiers_close(t);
            ops += each;
            pid_t pid = fork();
            assert_true(pid >= 0 && at < 2000);
            if (pid == 0) {
                ru_tiers *own = NULL;
                const ru_disk_tier tiers[2] = {{ru_path_join(&f->arena, f->root, "fast"), FAST},
                                               {ru_path_join(&f->arena, f->root, "slow"), SLOW}};
                const ru_tiers_options o = {.tiers = tiers, .n_tiers = 2, .space = "test"};
                if (dies) {
                    ru_test_os_die(at);
                } else {
                    ru_test_os_fail(at);
                }
                ru_status st = ru_tiers_open(&o, &own, NULL);
                bool reached = dies || ru_test_os_count() > at;
                ru_test_os_fail(-1);
                if (st == RU_OK) {
                    ru_tiers_close(own);
                }
                _exit(dies || !reached ? 7 : 0);
            }
            assert_int_equal(waitpid(pid, &how, 0), pid);
            assert_true(WIFEXITED(how) && (WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 7));
            whole = WEXITSTATUS(how) == 7;
            assert_float_equal((float)ops_of(f), (float)ops, 0.02);
        }
        ru_tiers_close(lives);
        t = open_space(f, "fast", false);
        assert_float_equal((float)ops_of(f), (float)ops, 0.02);
        assert_ok(ru_tier_remove(t, "a", &f->err), f->err);
        ru_tiers_close(t);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, ru_scratch_open, ru_scratch_close)

RU_TESTS(store_tiers_learn, T(test_learns), T(test_together), T(test_late_and_failed),
         T(test_records), T(test_ended_once), T(test_ops_once), T(test_mistakes))
