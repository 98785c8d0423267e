/* The random life of channels, a short one; test/wire/chan_storm_main.c runs it at length. */
#include "test/wire/chan_storm.h"

#include "base/arena.h"
#include "base/log.h"
#include "test/test.h"
#include "test/wire/chan_hostile.h"
#include "test/wire/chan_scan.h"

/* A channel takes its memory when it opens: nothing of its life allocates. */
static void seal(bool on)
{
    (on ? ru_alloc_seal : ru_alloc_unseal)();
}

static void storm(ru_chan_storm_options opt)
{
    ru_chan_storm_report r;
    ru_err err;
    opt.seed = ru_test_seed();
    opt.events = 2500;
    opt.seal = seal;
    assert_ok(ru_chan_storm(&opt, &r, &err), err);
    assert_true(r.sent > 100 && r.arrived > 100 && r.messages > 100 && r.cancelled > 10);
    assert_true(r.cuts > 5 && r.withdrawn > 5);
}

static void test_pairs(void **state)
{
    (void)state;
    storm((ru_chan_storm_options){.nodes = 2});
    storm((ru_chan_storm_options){.nodes = 2, .grants = true, .crc = true});
}

static void test_several_with_drops(void **state)
{
    (void)state;
    storm((ru_chan_storm_options){.nodes = 4, .drops = true, .crc = true});
    storm((ru_chan_storm_options){.nodes = 3, .drops = true, .grants = true});
}

/* Who finds no room hears when there is some. */
static void test_little_room(void **state)
{
    (void)state;
    storm((ru_chan_storm_options){.nodes = 3, .little = true});
    storm((ru_chan_storm_options){.nodes = 3, .little = true, .drops = true, .grants = true});
}

static void test_hostile_frames(void **state)
{
    (void)state;
    ru_log_options was = ru_log_get();
    ru_log_set(&(ru_log_options){.level = RU_LOG_ERROR});
    ru_chan_hostile_report r;
    ru_err err;
    assert_ok(ru_chan_hostile(ru_test_seed(), 3000, NULL, 0, &r, &err), err);
    assert_true(r.frames_before > 500 && r.frames_after > 500);
    assert_true(r.refused > 200 && r.honest > 50);
    /* Here the end of a stream is told while a frame of it is half there on the other connection.
     */
    assert_ok(ru_chan_hostile(21842, 60000, NULL, 0, &r, &err), err);
    ru_log_set(&was);
}

/* On real sockets; with time-outs at length: build/test/wire/chan_storm_main.c scan. */
static void test_strangers_at_the_door(void **state)
{
    (void)state;
    for (uint32_t tls = 0; tls < 2; tls++) {
        ru_chan_scan_report r;
        ru_chan_scan_options opt = {.seed = ru_test_seed(), .strangers = 400, .tls = tls == 1};
        ru_err err;
        assert_ok(ru_chan_scan(&opt, &r, &err), err);
        assert_true(r.connections > 350 && r.messages > 40);
        assert_true(tls == 1 || r.refused > 200);
    }
}

RU_TESTS(comm_chan_storm, cmocka_unit_test(test_pairs), cmocka_unit_test(test_several_with_drops),
         cmocka_unit_test(test_little_room), cmocka_unit_test(test_hostile_frames),
         cmocka_unit_test(test_strangers_at_the_door))
