/* The journal: what was appended is read again, by a later process too; all or nothing; one owner.
 * The outside witness of the file is SQLite itself, through the columns that it gives back. */
#include "cluster/journal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/file/file.h"
#include "test/test.h"

typedef struct seen {
    uint32_t n;
    ru_journal_event at[8];
    char text[8][64], who[8][64];
} seen;

static ru_status look(void *arg, const ru_journal_event *e, ru_err *err)
{
    seen *s = arg;
    (void)err;
    assert_true(s->n < 8);
    s->at[s->n] = *e;
    snprintf(s->text[s->n], 64, "%s", e->text);
    snprintf(s->who[s->n++], 64, "%s", e->who);
    return RU_OK;
}

typedef struct place {
    char dir[32], path[64];
    ru_arena arena;
    ru_journal j;
} place;

static void place_open(place *p)
{
    (void)snprintf(p->dir, sizeof p->dir, "/tmp/rubato-journal-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->path, sizeof p->path, "%s/journal", p->dir);
    ru_arena_init(&p->arena, 0);
}

static void place_close(place *p)
{
    ru_err err = {0};
    ru_arena_fini(&p->arena);
    assert_ok(ru_path_remove(p->dir, &err), err);
}

static bool open_journal(place *p)
{
    ru_err err = {0};
    ru_status st = ru_journal_sqlite(p->path, &p->arena, &p->j, &err);
    if (st == RU_E_UNSUPPORTED) {
        return false; /* built without SQLite */
    }
    assert_ok(st, err);
    return true;
}

static void events_stay(void **state)
{
    (void)state;
    place p;
    ru_err err = {0};
    place_open(&p);
    if (!open_journal(&p)) {
        place_close(&p);
        skip();
    }
    const ru_journal *j = &p.j;
    assert_true(ru_path_is_private(p.path));
    ru_journal_event two[] = {{.at_ns = 5,
                               .wall_ns = INT64_MAX,
                               .kind = 3,
                               .job = -7,
                               .node = 1,
                               .a = INT64_MIN,
                               .b = 2,
                               .who = "alice",
                               .text = "it's; 'x' \"\xc3\xa4"},
                              {.at_ns = 6, .kind = 4}};
    assert_ok(j->ops->append(j->self, two, 2, &err), err);
    assert_int_equal(two[0].seq, 1);
    assert_int_equal(two[1].seq, 2);
    fflush(stdout);
    pid_t pid = fork(); /* another scheduler is refused while this one has it */
    if (pid == 0) {
        ru_journal other;
        _exit(ru_journal_sqlite(p.path, &p.arena, &other, &err) == RU_E_AGAIN ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    j->ops->close(j->self);
    assert_true(open_journal(&p));
    seen s = {0};
    assert_ok(j->ops->read(j->self, 0, look, &s, &err), err);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.at[0].a, INT64_MIN);
    assert_int_equal(s.at[0].job, -7);
    assert_int_equal(s.at[0].wall_ns, INT64_MAX);
    assert_string_equal(s.text[0], two[0].text);
    assert_string_equal(s.who[0], "alice");
    assert_string_equal(s.text[1], "");
    s.n = 0;
    assert_ok(j->ops->read(j->self, 1, look, &s, &err), err);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.at[0].kind, 4);
    j->ops->close(j->self);
    place_close(&p);
}

/* All events of an append or none: after a disk that was full the next append goes on in order. */
static void a_full_disk_takes_nothing(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20 };
    place p;
    ru_err err = {0};
    struct rlimit was, small = {.rlim_cur = LARGE / 2};
    place_open(&p);
    if (!open_journal(&p)) {
        place_close(&p);
        skip();
    }
    const ru_journal *j = &p.j;
    char *large = ru_arena_zalloc(&p.arena, LARGE + 1, 1);
    assert_non_null(large);
    memset(large, 'x', LARGE);
    ru_journal_event one = {.kind = 1, .text = "one"}, two[] = {{.kind = 2}, {.text = large}};
    assert_ok(j->ops->append(j->self, &one, 1, &err), err);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ru_status st = j->ops->append(j->self, two, 2, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    (void)signal(SIGXFSZ, before);
    assert_true(st == RU_E_CREATE || st == RU_E_IO);
    assert_non_null(strstr(err.text, "cannot be written"));
    one.kind = 3;
    assert_ok(j->ops->append(j->self, &one, 1, &err), err);
    assert_int_equal(one.seq, 2);
    seen s = {0};
    assert_ok(j->ops->read(j->self, 0, look, &s, &err), err);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.at[1].kind, 3);
    j->ops->close(j->self);
    place_close(&p);
}

static void a_damaged_journal_names_its_copy(void **state)
{
    (void)state;
    place p;
    ru_err err = {0};
    char copy[80], junk[8192];
    place_open(&p);
    (void)snprintf(copy, sizeof copy, "%s.copy", p.path);
    if (!open_journal(&p)) {
        place_close(&p);
        skip();
    }
    ru_journal_event one = {.kind = 1, .who = "alice", .text = "first"}, two = {.kind = 2};
    assert_ok(p.j.ops->append(p.j.self, &one, 1, &err), err);
    assert_ok(p.j.ops->snapshot(p.j.self, &err), err);
    assert_ok(p.j.ops->append(p.j.self, &two, 1, &err), err);
    assert_ok(p.j.ops->snapshot(p.j.self, &err), err); /* it replaces the other */
    assert_true(ru_path_is_private(copy));
    p.j.ops->close(p.j.self);
    memset(junk, 'x', sizeof junk);
    assert_ok(ru_file_replace(p.path, junk, sizeof junk, &err), err);
    assert_int_equal(ru_journal_sqlite(p.path, &p.arena, &p.j, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, copy));
    assert_int_equal(rename(copy, p.path), 0);
    assert_true(open_journal(&p));
    seen s = {0};
    assert_ok(p.j.ops->read(p.j.self, 0, look, &s, &err), err);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.text[0], "first");
    p.j.ops->close(p.j.self);
    place_close(&p);
}

static void what_is_no_journal_is_refused(void **state)
{
    (void)state;
    place p;
    ru_err err = {0};
    place_open(&p);
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    assert_ok(ru_file_replace(p.path, junk, sizeof junk, &err), err);
    ru_status st = ru_journal_sqlite(p.path, &p.arena, &p.j, &err);
    assert_true(st == RU_E_DATA || st == RU_E_UNSUPPORTED);
    assert_true(st != RU_E_DATA || strstr(err.text, "is damaged") != NULL);
    place_close(&p);
}

/* What stands in CLUSTER.yaml is copied and shown, so no password may stand there. */
static void addresses_have_no_password(void **state)
{
    (void)state;
    static const char *const fine[] = {
        "/var/lib/rubato/journal",   "journal:1",
        "postgres://u@h/d",          "postgresql://u@h:5432/d?sslmode=require",
        "postgres:///d?host=/run/s", "postgres://u@[::1]:5432/d"};
    static const char *const bad[] = {
        "postgres://u:hush@h/d", "postgres://u:hush@h",
        "mysql://h/d",           "postgres://h/d?password=hush",
        "postgres://u:@h/d",     "postgres://u@x:hush@h?sslpassword=hush"};
    ru_err err = {0};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(fine); k++) {
        assert_ok(ru_journal_check(fine[k], &err), err);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(ru_journal_check(bad[k], &err), RU_E_CONFIG);
        assert_null(strstr(err.text, "hush"));
    }
}

RU_TESTS(cluster_journal, cmocka_unit_test(addresses_have_no_password),
         cmocka_unit_test(a_damaged_journal_names_its_copy),
         cmocka_unit_test(a_full_disk_takes_nothing), cmocka_unit_test(events_stay),
         cmocka_unit_test(what_is_no_journal_is_refused))
