#include "fleet/client/hours.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "env/zone.h"
#include "test/test.h"

/* Every minute of the day beside the definition: walk on until the hours are there. */
static void check(const char *text, uint32_t from, uint32_t minutes)
{
    rui_hours h;
    ru_err err = {0};
    assert_ok(rui_hours_read(text, &h, &err), err);
    for (uint32_t now = 0; now < RU_DAY_MINUTES; now++) {
        uint32_t wait = 0;
        while ((now + wait + RU_DAY_MINUTES - from) % RU_DAY_MINUTES >= minutes) {
            wait++;
        }
        assert_int_equal(rui_hours_until(&h, now), wait);
    }
}

static void test_every_minute(void **state)
{
    (void)state;
    check("22:00-06:00", 22 * 60, 8 * 60);
    check("9:30-17:45", 570, 495);
    check("00:00-0:01", 0, 1);
    check("18:00-24:00", 18 * 60, 360);
    check("24:00-06:00", 0, 360);
    rui_hours always;
    ru_err err = {0};
    assert_ok(rui_hours_read(NULL, &always, &err), err);
    assert_int_equal(rui_hours_until(&always, 77), 0);
}

static void test_hours_that_are_none(void **state)
{
    (void)state;
    static const char *const none[] = {"",           "22:00",        "22:00-",      "22:00-22:00",
                                       "0:00-24:00", "25:00-26:00",  "22:60-23:00", "22:0-23:00",
                                       "22-6",       "-1:00-6:00",   "24:01-25:00", "22:00-06:00 ",
                                       "a:00-b:00",  "22:00-06:00-", "024:00-6:00"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(none); k++) {
        rui_hours h;
        ru_err err = {0};
        assert_int_equal(rui_hours_read(none[k], &h, &err), RU_E_USAGE);
        assert_non_null(strstr(err.text, "expected HH:MM-HH:MM"));
    }
}

/* glibc says UTC for a zone that it does not know. */
static void test_zones(void **state)
{
    (void)state;
    static const struct {
        const char *tz;
        bool known;
    } at[] = {{"", true},
              {"UTC", true},
              {"UTC0", true},
              {"<+03>-3", true},
              {"CET-1CEST,M3.5.0,M10.5.0/3", true},
              {"GMT0BST,M3.5.0/1,M10.5.0", true},
              {"Europe/Nowhere", false},
              {":Europe/Nowhere", false},
              {"Nowhere", false},
              {"XX", false}};
    const char *was = ru_conf_env("TZ");
    char keep[64] = "";
    (void)strncpy(keep, was != NULL ? was : "", sizeof keep - 1);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(at); k++) {
        assert_int_equal(setenv("TZ", at[k].tz, 1), 0);
        assert_int_equal(ru_zone_known(), at[k].known);
    }
    assert_int_equal(was != NULL ? setenv("TZ", keep, 1) : unsetenv("TZ"), 0);
}

/* Berlin's clocks are put forward at 2026-03-29 01:00 UTC, and back at 2026-10-25 01:00 UTC. */
static void test_daylight_saving(void **state)
{
    (void)state;
    static const struct {
        int64_t utc_s;
        uint32_t minute;
        const char *zone;
    } at[] = {{1774745999, 119, "CET"},  /* 01:59:59 */
              {1774746000, 180, "CEST"}, /* 03:00 */
              {1792889999, 179, "CEST"}, /* 02:59:59 */
              {1792890000, 120, "CET"},  /* 02:00 again */
              {1792893600, 180, "CET"}};
    const char *was = ru_conf_env("TZ");
    char keep[64] = "", name[RU_ZONE_NAME];
    (void)strncpy(keep, was != NULL ? was : "", sizeof keep - 1);
    assert_int_equal(setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1), 0);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(at); k++) {
        assert_int_equal(ru_zone_minute(at[k].utc_s * 1000000000, name), at[k].minute);
        assert_string_equal(name, at[k].zone);
    }
    assert_int_equal(was != NULL ? setenv("TZ", keep, 1) : unsetenv("TZ"), 0);
}

RU_TESTS(fleet_hours, cmocka_unit_test(test_every_minute),
         cmocka_unit_test(test_hours_that_are_none), cmocka_unit_test(test_zones),
         cmocka_unit_test(test_daylight_saving))
