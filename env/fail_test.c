/* The k-th allocation and the k-th system call fail, for every k until all goes well: the call says
 * so in a sentence or does without, gives back every descriptor, and leaves nothing half done. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/loop/loop.h"
#include "env/process/shm.h"
#include "test/test.h"

enum { SEGMENT_BYTES = 3 << 20, FRAMES = 3, PAYLOAD = 20000 };

static char folder[64], path[96];

static uint32_t entries(const char *of)
{
    uint32_t n = 0;
    DIR *d = opendir(of);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

/* Try `act` with every failure; `after`, when not NULL, looks at what each try left. */
static void sweep(ru_status (*act)(ru_err *err), void (*after)(ru_status st))
{
    for (uint32_t os = 0; os < 2; os++) {
        bool failed = true;
        for (int64_t k = 0; failed; k++) {
            assert_true(k < 5000);
            uint32_t before = entries("/proc/self/fd");
            ru_err err = {0};
            (os == 1 ? ru_test_os_fail : ru_test_alloc_fail)(k);
            ru_status st = act(&err);
            failed = (os == 1 ? ru_test_os_count() : ru_test_alloc_count()) > k;
            ru_test_os_fail(-1);
            ru_test_alloc_fail(-1);
            if (st != RU_OK && (err.text[0] == '\0' || !failed)) {
                fail_msg("%s %lld: %s", os == 1 ? "call" : "allocation", (long long)k, err.text);
            }
            assert_int_equal(entries("/proc/self/fd"), before);
            if (after != NULL) {
                after(st);
            }
        }
    }
}

/* -- files ---------------------------------------------------------------------------------------
 */

static const char old_bytes[] = "what was there", new_bytes[] = "what comes, and is longer";

static void write_old(void)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(old_bytes, 1, sizeof old_bytes, f), sizeof old_bytes);
    assert_int_equal(fclose(f), 0);
}

/* Old or new, whole, and nothing beside it. */
static void is_whole(ru_status st)
{
    char have[64] = {0};
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(have, 1, sizeof have, f);
    assert_int_equal(fclose(f), 0);
    bool is_old = n == sizeof old_bytes && memcmp(have, old_bytes, n) == 0;
    bool is_new = n == sizeof new_bytes && memcmp(have, new_bytes, n) == 0;
    assert_true(is_new || (is_old && st != RU_OK));
    assert_int_equal(entries(folder), 1);
    write_old();
}

static ru_status replace(ru_err *err)
{
    return ru_file_replace(path, new_bytes, sizeof new_bytes, err);
}

static ru_status replace_secret(ru_err *err)
{
    return ru_file_secret(path, new_bytes, sizeof new_bytes, err);
}

static ru_status append(ru_err *err)
{
    ru_log_file *f;
    RU_TRY(ru_log_file_open(path, true, &f, err));
    ru_status st = ru_log_file_append(f, new_bytes, sizeof new_bytes, err);
    st = st == RU_OK ? ru_log_file_sync(f, err) : st;
    ru_log_file_close(f);
    return st;
}

/* The old bytes are still there. */
static void has_grown(ru_status st)
{
    char have[sizeof old_bytes];
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fread(have, 1, sizeof have, f), sizeof have);
    assert_memory_equal(have, old_bytes, sizeof have);
    assert_int_equal(fclose(f), 0);
    int64_t n = ru_path_bytes(path);
    assert_true(n == sizeof old_bytes + sizeof new_bytes || (st != RU_OK && n == sizeof old_bytes));
    write_old();
}

static ru_status read_three_ways(ru_err *err)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    char *data, part[4];
    int64_t n;
    ru_map_file m = {0};
    ru_in_file in = {.fd = -1};
    ru_status st = ru_file_read(path, 0, &a, &data, &n, err);
    st = st == RU_OK ? ru_file_map(path, &m, err) : st;
    st = st == RU_OK ? ru_in_open(path, &in, err) : st;
    st = st == RU_OK ? ru_in_read(&in, path, 5, part, sizeof part, err) : st;
    if (st == RU_OK) {
        assert_int_equal(n, sizeof old_bytes);
        assert_memory_equal(data, m.data, sizeof old_bytes);
        assert_memory_equal(part, old_bytes + 5, sizeof part);
    }
    ru_in_close(&in);
    ru_file_unmap(&m);
    ru_arena_fini(&a);
    return st;
}

static ru_status make_and_remove(ru_err *err)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    char deep[128], moved[128];
    char **names;
    uint32_t n;
    snprintf(deep, sizeof deep, "%s/a/b/c", folder);
    snprintf(moved, sizeof moved, "%s/a/d", folder);
    ru_status st = ru_dir_make(deep, err);
    st = st == RU_OK ? ru_path_rename(deep, moved, err) : st;
    *strrchr(moved, '/') = '\0';
    st = st == RU_OK ? ru_dir_list(moved, &a, &names, &n, err) : st;
    if (st == RU_OK) {
        assert_int_equal(n, 2);
        st = ru_path_remove(moved, err);
    }
    ru_arena_fini(&a);
    return st;
}

static void remove_rest(ru_status st)
{
    char moved[128];
    snprintf(moved, sizeof moved, "%s/a", folder);
    assert_true(st != RU_OK || !ru_path_exists(moved));
    if (ru_path_exists(moved)) {
        assert_int_equal(ru_path_remove(moved, NULL), RU_OK);
    }
}

static void test_files(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/rubato-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/f", folder);
    write_old();
    sweep(replace, is_whole);
    sweep(replace_secret, is_whole);
    sweep(append, has_grown);
    sweep(read_three_ways, NULL);
    sweep(make_and_remove, remove_rest);
    assert_int_equal(ru_path_remove(folder, NULL), RU_OK);
}

/* -- memory, loops -------------------------------------------------------------------------------
 */

static ru_status share(ru_err *err)
{
    ru_shm *a = NULL, *b = NULL;
    ru_status st = ru_shm_create("fail", SEGMENT_BYTES, &a, err);
    st = st == RU_OK ? ru_shm_map(ru_shm_handle(a), SEGMENT_BYTES, &b, err) : st;
    if (st == RU_OK) {
        ((uint8_t *)ru_shm_data(a))[SEGMENT_BYTES - 1] = 7;
        assert_int_equal(((uint8_t *)ru_shm_data(b))[SEGMENT_BYTES - 1], 7);
    }
    ru_shm_close(b);
    ru_shm_close(a);
    return st;
}

/* No mapping of a segment stays. */
static void is_unmapped(ru_status st)
{
    (void)st;
    char line[256];
    FILE *f = fopen("/proc/self/maps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        assert_null(strstr(line, "rubato-fail"));
    }
    assert_int_equal(fclose(f), 0);
}

static void on_wake(void *self, ru_time now)
{
    (void)now;
    ru_loop_stop(self);
}

static void on_readable(void *self, int fd, uint32_t events, ru_time now)
{
    (void)self, (void)fd, (void)events, (void)now;
}

static ru_status loop(ru_err *err)
{
    ru_loop *l;
    RU_TRY(ru_loop_open(&l, err));
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    uint32_t waker;
    ru_status st = ru_loop_fd(l, fds[0], EPOLLIN, on_readable, NULL, err);
    st = st == RU_OK ? ru_loop_fd(l, fds[0], EPOLLIN | EPOLLRDHUP, on_readable, NULL, err) : st;
    st = st == RU_OK ? ru_loop_waker(l, on_wake, l, &waker, err) : st;
    if (st == RU_OK) {
        ru_loop_wake(l, waker);
        st = ru_loop_run(l, err);
    }
    ru_loop_fd_off(l, fds[0]);
    close(fds[0]);
    close(fds[1]);
    ru_loop_close(l);
    return st;
}

static void test_shared_memory(void **state)
{
    (void)state;
    sweep(share, is_unmapped);
}

static void test_loop(void **state)
{
    (void)state;
    sweep(loop, NULL);
}

/* -- links: two in one loop, one sends the other some frames --------------------------------------
 */

typedef struct side {
    ru_loop *loop;
    ru_link_tcp *link;
    ru_link_user user;
    uint32_t sent, got, opened, closed;
    char why[256];
} side;

static uint8_t payload[PAYLOAD], sink[PAYLOAD];
static const uint8_t key[32] = "a key of this test, 32 bytes...";
static bool guarded;

static void on_opened(void *self, ru_conn_id c, bool accepted, const char *address, ru_time now)
{
    (void)c, (void)accepted, (void)address, (void)now;
    ((side *)self)->opened++;
}

static void on_closed(void *self, ru_conn_id c, ru_status why, const char *sentence, ru_time now)
{
    (void)c, (void)now;
    side *s = self;
    assert_int_not_equal(why, RU_OK);
    s->closed++;
    snprintf(s->why, sizeof s->why, "%s", sentence);
    ru_loop_stop(s->loop);
}

static bool on_pull(void *self, ru_conn_id c, int64_t room_bytes, ru_link_tx *tx, ru_time now)
{
    (void)c, (void)room_bytes, (void)now;
    side *s = self;
    if (s->sent == FRAMES) {
        return false;
    }
    s->sent++;
    tx->spans[tx->n_spans++] = (ru_span){payload, PAYLOAD};
    return true;
}

static bool on_pull_nothing(void *self, ru_conn_id c, int64_t room_bytes, ru_link_tx *tx,
                            ru_time now)
{
    (void)self, (void)c, (void)room_bytes, (void)tx, (void)now;
    return false;
}

static void on_sent(void *self, ru_conn_id c, uint64_t cookie, ru_time now)
{
    (void)self, (void)c, (void)cookie, (void)now;
}

static ru_status on_head(void *self, ru_conn_id c, const uint8_t *head, ru_link_rx *rx, ru_time now)
{
    (void)self, (void)c, (void)head, (void)now;
    rx->spans[rx->n_spans++] = (ru_span){sink, PAYLOAD};
    return RU_OK;
}

static ru_status on_body(void *self, ru_conn_id c, ru_time now)
{
    (void)c, (void)now;
    side *s = self;
    assert_memory_equal(sink, payload, PAYLOAD);
    memset(sink, 0, PAYLOAD);
    if (++s->got == FRAMES) {
        ru_loop_stop(s->loop);
    }
    return RU_OK;
}

static ru_status side_open(side *s, ru_loop *l, bool listens, ru_err *err)
{
    *s = (side){.loop = l};
    s->user = (ru_link_user){.self = s,
                             .opened = on_opened,
                             .closed = on_closed,
                             .pull = listens ? on_pull_nothing : on_pull,
                             .sent = on_sent,
                             .head = on_head,
                             .body = on_body};
    ru_link_tcp_options o = {.loop = l,
                             .listen = listens ? "127.0.0.1:0" : NULL,
                             .psk = key,
                             .psk_bytes = sizeof key,
                             .tls_always = guarded,
                             .tls_never = !guarded,
                             .conns_max = 8};
    RU_TRY(ru_link_tcp_open(&o, &s->link, err));
    if (listens) { /* where others reach it */
        assert_string_not_equal(strrchr(ru_link_tcp_address(s->link), ':'), ":0");
    }
    ru_link_tcp_user(s->link, &s->user);
    return RU_OK;
}

/* Until all frames came, or who dials heard why not. */
static ru_status exchange(ru_loop *l, side *a, side *b, ru_err *err)
{
    ru_conn_id id = {0};
    ru_link link = ru_link_tcp_link(a->link);
    RU_TRY(link.ops->connect(link.self, ru_link_tcp_address(b->link), RU_LINK_BULK, &id, err));
    while (b->got < FRAMES && a->closed == 0) {
        RU_TRY(ru_loop_run(l, err));
    }
    assert_true(a->closed <= 1 && b->closed <= 1);
    if (b->got < FRAMES) {
        return RU_FAIL(err, RU_E_IO, "%s", a->why);
    }
    link.ops->close(link.self, id);
    return RU_OK;
}

static ru_status link_life(ru_err *err)
{
    ru_loop *l;
    side a = {0}, b = {0};
    RU_TRY(ru_loop_open(&l, err));
    ru_status st = side_open(&b, l, true, err);
    st = st == RU_OK ? side_open(&a, l, false, err) : st;
    st = st == RU_OK ? exchange(l, &a, &b, err) : st;
    ru_link_tcp_close(a.link);
    ru_link_tcp_close(b.link);
    ru_loop_close(l);
    return st;
}

static void test_links(void **state)
{
    (void)state;
    ru_log_options was = ru_log_get();
    ru_log_set(&(ru_log_options){.level = RU_LOG_OFF});
    for (uint32_t i = 0; i < PAYLOAD; i++) {
        payload[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (uint32_t k = 0; k < 2; k++) {
        guarded = k == 1;
        sweep(link_life, NULL);
    }
    ru_log_set(&was);
}

RU_TESTS(env_fail, cmocka_unit_test(test_files), cmocka_unit_test(test_shared_memory),
         cmocka_unit_test(test_loop), cmocka_unit_test(test_links))
