/* A file is fresh when two looks saw the same of it, once, the oldest first; notes are read back,
 * unless the run read
 * nothing, also after a kill; samples are found as by walking over all files. */
#include "fleet/follow.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "base/str.h"
#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

typedef struct folder {
    ru_scratch *s;
    const char *dir, *notes;
    ru_follow *f;
} folder;

static folder open_folder(void **state)
{
    ru_scratch *s = *state;
    folder d = {.s = s,
                .dir = ru_path_join(&s->arena, s->root, "in"),
                .notes = ru_path_join(&s->arena, s->root, "notes")};
    assert_ok(ru_dir_make(d.dir, &s->err), s->err);
    assert_ok(ru_follow_open(d.dir, NULL, NULL, &d.f, &s->err), s->err);
    return d;
}

/* A file that was written at `second`. */
static void put(const folder *d, const char *name, const char *text, int64_t second)
{
    const char *path = ru_path_join(&d->s->arena, d->dir, name);
    const struct timespec at[2] = {{.tv_sec = second}, {.tv_sec = second}};
    assert_ok(ru_file_own(path, text, (int64_t)strlen(text), &d->s->err), d->s->err);
    assert_int_equal(utimensat(AT_FDCWD, path, at, 0), 0);
}

/* The fresh names of a look, each with a blank behind it. */
static void assert_fresh(const folder *d, const char *expected)
{
    const char *const *names;
    uint32_t n;
    ru_text all = ru_text_arena(&d->s->arena);
    assert_ok(ru_follow_look(d->f, &names, &n, &d->s->err), d->s->err);
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(&all, "%s ", names[k]);
    }
    assert_string_equal(all.n > 0 ? all.p : "", expected);
}

static void test_looks(void **state)
{
    folder d = open_folder(state);
    ru_err *err = &d.s->err;
    assert_ok(ru_follow_begin(d.f, d.notes, true, err), *err);
    assert_fresh(&d, "");
    put(&d, "b", "1", 100);
    put(&d, "a", "1", 200);
    put(&d, ".hidden", "1", 100);
    put(&d, "empty", "", 100);
    put(&d, "\xff", "1", 100);
    put(&d, "new\nline", "1", 100);
    assert_ok(ru_dir_make(ru_path_join(&d.s->arena, d.dir, "folder"), err), *err);
    assert_fresh(&d, ""); /* seen for the first time */
    assert_fresh(&d, "b a ");
    assert_fresh(&d, "b a "); /* nobody took them */
    put(&d, "a", "12", 200);  /* grows */
    assert_fresh(&d, "b ");
    put(&d, "a", "12", 201); /* written again */
    assert_fresh(&d, "b ");
    assert_ok(ru_follow_take(d.f, "b", 1, err), *err);
    assert_fresh(&d, "a ");
    assert_ok(ru_path_remove(ru_path_join(&d.s->arena, d.dir, "a"), err), *err);
    assert_fresh(&d, "");
    put(&d, "a", "12", 201); /* it is back */
    put(&d, "b", "123", 300);
    assert_fresh(&d, "");
    assert_fresh(&d, "a "); /* b was taken, once and for all */
    ru_follow_close(d.f);
    assert_int_equal(ru_follow_open(d.notes, NULL, NULL, &d.f, err), RU_E_MISSING);
}

static void assert_found(const folder *d, int64_t from, int64_t to, int64_t before, int64_t samples,
                         const char *names)
{
    ru_follow_part p;
    ru_text all = ru_text_arena(&d->s->arena);
    assert_ok(ru_follow_find(d->f, from, to, &d->s->arena, &p, &d->s->err), d->s->err);
    for (uint32_t k = 0; k < p.n; k++) {
        ru_text_putf(&all, "%s ", strrchr(p.paths[k], '/') + 1);
    }
    assert_string_equal(all.p, names);
    assert_int_equal(p.before, before);
    assert_int_equal(p.samples, samples);
}

static void test_notes(void **state)
{
    folder d = open_folder(state);
    ru_err *err = &d.s->err;
    assert_ok(ru_follow_begin(d.f, d.notes, true, err), *err);
    assert_ok(ru_follow_take(d.f, "two words", 3, err), *err);
    assert_ok(ru_follow_take(d.f, "damaged", 0, err), *err);
    assert_ok(ru_follow_take(d.f, "last", 5, err), *err);
    assert_ok(ru_follow_sync(d.f, err), *err);
    assert_int_equal(ru_follow_take(d.f, "last", 5, err), RU_E_DATA);
    ru_follow_close(d.f);
    const char text[] = "3 two words\n0 damaged\n5 last\n7 torn";
    for (int64_t n = (int64_t)strlen("3 two words\n0 damaged\n5 last\n"); n < (int64_t)sizeof text;
         n++) { /* killed while the next line was being written */
        assert_ok(ru_file_own(d.notes, text, n, err), *err);
        assert_ok(ru_follow_open(d.dir, NULL, NULL, &d.f, err), *err);
        assert_ok(ru_follow_begin(d.f, d.notes, true, err), *err);
        assert_int_equal(ru_follow_samples(d.f), 8);
        assert_found(&d, 2, 4, 0, 8, "two words last ");
        assert_ok(ru_follow_take(d.f, "next", 1, err), *err);
        ru_follow_close(d.f);
        assert_ok(ru_follow_open(d.dir, NULL, NULL, &d.f, err), *err);
        assert_ok(ru_follow_begin(d.f, d.notes, true, err), *err);
        assert_found(&d, 7, 9, 3, 6, "last next ");
        ru_follow_close(d.f);
    }
    assert_ok(ru_follow_open(d.dir, NULL, NULL, &d.f, err), *err);
    assert_ok(ru_follow_begin(d.f, d.notes, false, err), *err); /* of a run that read nothing */
    assert_int_equal(ru_follow_samples(d.f), 0);
    assert_ok(ru_follow_take(d.f, "last", 2, err), *err);
    assert_found(&d, 0, 2, 0, 2, "last ");
    ru_follow_close(d.f);
    static const char *const bad[] = {"3\n",  "x a\n",      "-1 a\n",
                                      "3 \n", "1 a\n2 a\n", "9223372036854775807 a\n"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_ok(ru_file_own(d.notes, bad[k], (int64_t)strlen(bad[k]), err), *err);
        assert_ok(ru_follow_open(d.dir, NULL, NULL, &d.f, err), *err);
        assert_int_equal(ru_follow_begin(d.f, d.notes, true, err), RU_E_DATA);
        ru_follow_close(d.f);
    }
}

/* Each range against a walk over all samples. */
static void test_samples(void **state)
{
    enum { FILES = 12 };
    folder d = open_folder(state);
    ru_err *err = &d.s->err;
    int64_t samples[FILES], all = 0;
    ru_rng r = ru_rng_from(5, 0);
    assert_ok(ru_follow_begin(d.f, d.notes, true, err), *err);
    for (uint32_t k = 0; k < FILES; k++) {
        char name[8];
        (void)snprintf(name, sizeof name, "%u", k);
        samples[k] = (int64_t)ru_rng_below(&r, 4);
        all += samples[k];
        assert_ok(ru_follow_take(d.f, name, samples[k], err), *err);
    }
    assert_int_equal(ru_follow_samples(d.f), all);
    for (int64_t from = 0; from < all; from++) {
        for (int64_t to = from + 1; to <= all; to++) {
            char names[64] = "";
            int64_t at = 0, before = -1, held = 0;
            for (uint32_t k = 0; k < FILES; at += samples[k++]) {
                if (samples[k] > 0 && at < to && at + samples[k] > from) {
                    before = before < 0 ? at : before;
                    held += samples[k];
                    (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%u ", k);
                }
            }
            assert_found(&d, from, to, before, held, names);
        }
        int64_t at = 0, n = 0;
        uint32_t k = 0;
        while (at + samples[k] <= from) {
            at += samples[k++];
        }
        for (; k < FILES; k++, n++) {
            assert_true(n == 0 || ru_follow_reach(d.f, from, (uint32_t)n) == at);
            at += samples[k];
        }
        assert_int_equal(ru_follow_reach(d.f, from, FILES), all);
    }
    ru_follow_close(d.f);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(fleet_follow, T(test_looks), T(test_notes), T(test_samples))
