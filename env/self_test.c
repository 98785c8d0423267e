#include "test/test.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "env/clock.h"
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
    assert_true(free > 1 << 20 && free <= ru_self_memory_bytes());
    assert_true(limit >= 0);
    ru_arena_fini(&a);
}

RU_TESTS(env_self, cmocka_unit_test(first_stop_signal_is_counted), cmocka_unit_test(knows_itself),
         cmocka_unit_test(knows_what_memory_is_free))
