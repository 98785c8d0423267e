/* Shared memory: one segment seen twice, owners that die, handles that lie, words that order it. */
#include "env/process/shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/thread.h"
#include "test/test.h"

static void test_shm_is_shared_by_handle(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_shm *a = NULL, *b = NULL;
    assert_int_equal(ru_shm_create("test", 5 << 20, &a, &err), RU_OK);
    assert_int_equal(ru_shm_size_bytes(a), 5 << 20);
    assert_int_equal((uintptr_t)ru_shm_data(a) % (2 << 20), 0);
    uint8_t *da = ru_shm_data(a);
    assert_int_equal(da[0], 0);
    assert_int_equal(da[(5 << 20) - 1], 0);
    assert_int_equal(ru_shm_map(ru_shm_handle(a), 5 << 20, &b, &err), RU_OK);
    uint8_t *db = ru_shm_data(b);
    assert_ptr_not_equal(da, db);
    da[12345] = 42;
    assert_int_equal(db[12345], 42);
    db[(5 << 20) - 1] = 7;
    assert_int_equal(da[(5 << 20) - 1], 7);
    char handle[RU_SHM_HANDLE_MAX];
    memcpy(handle, ru_shm_handle(a), sizeof handle);
    ru_shm_close(a);
    assert_int_equal(db[12345], 42); /* outlives its owner's mapping */
    a = NULL;
    assert_int_equal(ru_shm_map(handle, 0, &a, &err), RU_E_PEER);
    assert_null(a);
    ru_shm_close(b);
    ru_shm_close(NULL);
}

/* The owner is another process and dies: no fault, and its handle says so. */
static void test_shm_outlives_its_owner(void **state)
{
    (void)state;
    int pipe_fd[2], go[2];
    assert_int_equal(pipe(pipe_fd), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        ru_shm *s = NULL;
        if (ru_shm_create("child", 1 << 16, &s, NULL) != RU_OK) {
            _exit(1);
        }
        memset(ru_shm_data(s), 9, 1 << 16);
        char handle[RU_SHM_HANDLE_MAX] = {0};
        strncpy(handle, ru_shm_handle(s), sizeof handle - 1);
        char byte;
        bool ok = write(pipe_fd[1], handle, sizeof handle) == (ssize_t)sizeof handle &&
                  read(go[0], &byte, 1) == 1;
        _exit(ok ? 0 : 2);
    }
    char handle[RU_SHM_HANDLE_MAX];
    assert_int_equal(read(pipe_fd[0], handle, sizeof handle), sizeof handle);
    ru_err err = {0};
    ru_shm *s = NULL;
    assert_int_equal(ru_shm_map(handle, 1 << 16, &s, &err), RU_OK);
    assert_int_equal(write(go[1], "x", 1), 1);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    const uint8_t *d = ru_shm_data(s);
    for (uint32_t k = 0; k < 1 << 16; k++) {
        assert_int_equal(d[k], 9);
    }
    ru_shm *again = NULL;
    assert_int_equal(ru_shm_map(handle, 0, &again, &err), RU_E_PEER);
    assert_non_null(strstr(err.text, "has ended"));
    ru_shm_close(s);
    for (uint32_t k = 0; k < 2; k++) {
        close(pipe_fd[k]);
        close(go[k]);
    }
}

static void test_shm_refuses_bad_handles(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",          "x",        "1:2",      "1:2:3",   "-1:2:3:4",          "1:-2:3:4", "1:2:0:4",
        "1:2:3:4:5", "1:2:3:zz", "1:2:3:4 ", "0:0:0:0", "99999999999:1:1:1", "1:2:-5:4",
    };
    ru_err err = {0};
    ru_shm *s = NULL;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(ru_shm_map(bad[k], 0, &s, &err), RU_E_DATA);
    }
    assert_int_equal(ru_shm_create("t", 0, &s, &err), RU_E_ARG);
    assert_int_equal(ru_shm_create("t", -5, &s, &err), RU_E_ARG);
    assert_null(s);

    /* Right name, but its owner could still shrink it under us. */
    int fd = memfd_create("rubato-x-00000000000000ab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    char handle[RU_SHM_HANDLE_MAX];
    snprintf(handle, sizeof handle, "%ld:%d:4096:00000000000000ab", (long)getpid(), fd);
    assert_int_equal(ru_shm_map(handle, 0, &s, &err), RU_E_DATA);
    assert_int_equal(ru_shm_map(handle, 8192, &s, &err), RU_E_DATA);
    snprintf(handle, sizeof handle, "%ld:%d:4096:00000000000000ac", (long)getpid(), fd);
    assert_int_equal(ru_shm_map(handle, 0, &s, &err), RU_E_PEER);
    close(fd);
}

static void test_shm_host_is_stable(void **state)
{
    (void)state;
    char a[RU_SHM_HOST_MAX], b[RU_SHM_HOST_MAX];
    ru_shm_host(a);
    ru_shm_host(b);
    assert_string_equal(a, b);
    assert_true(strlen(a) > 10);
}

typedef struct ping_pong {
    ru_shm_word a, b;
    uint32_t rounds;
    int64_t spin_ns;
    uint64_t plain; /* written by turns, never atomically: the words order it */
} ping_pong;

static void pong(void *arg)
{
    ping_pong *p = arg;
    ru_shm_wait_options o = {.spin_ns = p->spin_ns, .timeout_ns = 300000000000};
    for (uint32_t k = 1; k <= p->rounds; k++) {
        if (ru_shm_wait(&p->a, k, &o) != RU_OK) {
            return;
        }
        p->plain = p->plain * 3 + 1;
        ru_shm_post(&p->b, k);
    }
}

static void test_words_order_memory(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 2; mode++) {
        ping_pong p = {.rounds = 2000, .spin_ns = mode == 0 ? 0 : 20000};
        ru_thread t = {0};
        assert_int_equal(ru_thread_start(&t, "pong", pong, &p, NULL), RU_OK);
        ru_shm_wait_options o = {.spin_ns = p.spin_ns, .timeout_ns = 300000000000};
        uint64_t want = 0;
        for (uint32_t k = 1; k <= p.rounds; k++) {
            p.plain = p.plain * 5 + 2;
            want = (want * 5 + 2) * 3 + 1;
            ru_shm_post(&p.a, k);
            assert_int_equal(ru_shm_wait(&p.b, k, &o), RU_OK);
            assert_true(p.plain == want);
        }
        ru_thread_join(&t);
        assert_int_equal(p.a.sleepers, 0);
        assert_int_equal(p.b.sleepers, 0);
    }
}

static ru_status third_time(void *self)
{
    uint32_t *n = self;
    return ++*n >= 3 ? RU_E_PEER : RU_OK;
}

static void test_waits_end(void **state)
{
    (void)state;
    ru_shm_word w = {0};
    ru_shm_wait_options o = {.timeout_ns = 1000};
    assert_int_equal(ru_shm_wait(&w, 0, &o), RU_OK);
    assert_int_equal(ru_shm_wait(&w, 1, &o), RU_E_AGAIN);
    uint32_t asked = 0;
    o = (ru_shm_wait_options){.check = third_time, .self = &asked, .check_ns = 1000};
    assert_int_equal(ru_shm_wait(&w, 1, &o), RU_E_PEER);
    assert_int_equal(asked, 3);
    assert_int_equal(w.sleepers, 0);
    /* Around the end of the numbers. */
    assert_int_equal(ru_shm_post(&w, UINT32_MAX - 1), UINT32_MAX - 1);
    assert_int_equal(ru_shm_post(&w, 1), 1);
    o = (ru_shm_wait_options){.timeout_ns = 1000};
    assert_int_equal(ru_shm_wait(&w, UINT32_MAX, &o), RU_OK);
    assert_int_equal(ru_shm_wait(&w, 1, &o), RU_OK);
    assert_int_equal(ru_shm_wait(&w, 2, &o), RU_E_AGAIN);
    assert_int_equal(ru_shm_look(&w), 1);
}

RU_TESTS(env_shm, cmocka_unit_test(test_shm_is_shared_by_handle),
         cmocka_unit_test(test_shm_outlives_its_owner),
         cmocka_unit_test(test_shm_refuses_bad_handles), cmocka_unit_test(test_shm_host_is_stable),
         cmocka_unit_test(test_words_order_memory), cmocka_unit_test(test_waits_end))
