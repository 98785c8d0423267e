#include "test/test.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file.h"
#include "env/memory.h"
#include "env/self.h"

static void first_stop_signal_is_counted(void **state)
{
    (void)state;
    ru_self_stop_watch();
    assert_int_equal(ru_self_stop_asked(), 0);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(ru_self_stop_asked(), SIGTERM);
    ru_self_stop_unwatch();
}

static void knows_itself(void **state)
{
    (void)state;
    char text[128];
    assert_true(ru_self_rss_bytes() > 0);
    assert_true(ru_self_rss_peak_bytes() >= ru_self_rss_bytes() / 2);
    assert_int_equal(ru_self_pid(), getpid());
    assert_true(ru_self_memory_bytes() > 1 << 20);
    ru_self_host(text, sizeof text);
    assert_true(strlen(text) > 0);
    ru_self_cpu(text, sizeof text);
    assert_true(strlen(text) > 0);
    int64_t start = ru_self_start_ns();
    assert_true(start >= 0 && start <= ru_clock_now().ns + 20000000);
}

static void knows_what_memory_is_free(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    int64_t free = ru_memory_free_bytes(&a), limit = ru_memory_limit_bytes(&a);
    assert_true(free > 1 << 20 && free <= ru_self_memory_bytes() && (limit == 0 || free <= limit));
    assert_true(limit >= 0);
    ru_arena_fini(&a);
}

static void put(ru_arena *a, const char *root, const char *dir, const char *file, const char *text)
{
    ru_err err = {0};
    char *path = ru_path_join(a, root, dir);
    assert_ok(ru_dir_make(path, &err), err);
    assert_ok(ru_file_replace(ru_path_join(a, path, file), text, (int64_t)strlen(text), &err), err);
}

/* A group is bound by those around it, and shares what they leave. */
static void finds_limits_of_groups(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    char root[] = "/tmp/rubato-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    put(&a, root, "out/in", "memory.max", "max\n");
    put(&a, root, "out", "memory.max", "5000\n");
    put(&a, root, "out", "memory.current", "4000\n");
    put(&a, root, "out", "memory.stat", "anon 1\ninactive_file 1500\nactive_file 7\n");
    put(&a, root, "full", "memory.max", "3000\n");
    put(&a, root, "full", "memory.current", "3100\n");
    put(&a, root, "memory/job", "memory.limit_in_bytes", "9223372036854771712\n");
    put(&a, root, "memory", "memory.limit_in_bytes", "7000\n");
    put(&a, root, "memory", "memory.usage_in_bytes", "1000\n");
    static const struct {
        const char *text;
        int64_t limit, rest;
    } cases[] = {
        {"", 0, INT64_MAX},
        {"0::/\n", 0, INT64_MAX},
        {"0::/none\n", 0, INT64_MAX},
        {"0::/out/in\n", 5000, 2500},
        {"0::/out", 5000, 2500},
        {"0::/full\n", 3000, 0},
        {"5:cpu:/job\n1:name=memory:/job\n0::/\n", 0, INT64_MAX},
        {"4:memory:/job\n0::/\n", 7000, 6000},
        {"4:cpu,memory:/elsewhere/job\n", 7000, 6000}, /* a container sees its own root only */
        {"4:memory:/job\n0::/out/in\n", 5000, 2500},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        rui_memory_groups g = rui_memory_groups_of(&a, ru_str_c(cases[i].text), root);
        assert_int_equal(g.limit_bytes, cases[i].limit);
        assert_int_equal(g.rest_bytes, cases[i].rest);
    }
    assert_int_equal(ru_path_remove(root, NULL), RU_OK);
    ru_arena_fini(&a);
}

RU_TESTS(env_self, cmocka_unit_test(first_stop_signal_is_counted), cmocka_unit_test(knows_itself),
         cmocka_unit_test(knows_what_memory_is_free), cmocka_unit_test(finds_limits_of_groups))
