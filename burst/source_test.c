/* Lines of access logs, a log that grows and is rotated, pages of figures that count on or begin
 * anew. */
#include "burst/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "env/file/file.h"
#include "test/test.h"

static void test_lines(void **state)
{
    (void)state;
    double s = -1;
    assert_true(rui_source_line(ru_str_c("GET / 200 0.125\n"), 0, &s) && s == 0.125);
    assert_true(rui_source_line(ru_str_c("  0.5  GET /"), 1, &s) && s == 0.5);
    assert_true(rui_source_line(ru_str_c("a 0 c"), 2, &s) && s == 0);
    assert_false(rui_source_line(ru_str_c("GET / -"), 0, &s));
    assert_false(rui_source_line(ru_str_c("GET / -1"), 0, &s));
    assert_false(rui_source_line(ru_str_c("0.5"), 2, &s));
    assert_false(rui_source_line(ru_str_c(""), 0, &s));
    assert_false(rui_source_line(ru_str_c("nan"), 0, &s));
}

static void put(const char *path, const char *mode, const char *text)
{
    FILE *f = fopen(path, mode);
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

static void test_log(void **state)
{
    (void)state;
    ru_err err;
    char dir[] = "/tmp/rubato-test-XXXXXX", path[64], other[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/log", dir);
    (void)snprintf(other, sizeof other, "%s/log.1", dir);
    static ru_source s;
    static ru_source_news n;
    s = (ru_source){.opt = {.log = path, .metrics = ""}};
    assert_int_equal(ru_source_look(&s, &n, &err), RU_E_MISSING);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ru_source_look(&s, &n, &err), RU_E_CONFIG); /* nobody waits for a pipe */
    assert_int_equal(remove(path), 0);
    put(path, "w", "old 9\n");
    assert_ok(ru_source_look(&s, &n, &err), err);
    assert_int_equal(n.requests, 0); /* what was there is not ours */
    put(path, "a", "a 0.1\nb 0.2\nc 0.");
    assert_ok(ru_source_look(&s, &n, &err), err);
    assert_int_equal(n.requests, 2);
    put(path, "a", "3\n");
    assert_ok(ru_source_look(&s, &n, &err), err);
    assert_true(n.requests == 1 && n.latency_s[0] == 0.3);
    assert_int_equal(rename(path, other), 0);
    put(path, "w", "d 0.4\n");
    assert_ok(ru_source_look(&s, &n, &err), err);
    assert_true(n.requests == 1 && n.latency_s[0] == 0.4);
    put(path, "w", ""); /* cut, as copytruncate does */
    assert_ok(ru_source_look(&s, &n, &err), err);
    for (uint32_t k = 0; k < 100; k++) {
        put(path, "a", "no seconds here\n");
    }
    assert_int_equal(ru_source_look(&s, &n, &err), RU_E_DATA);
    put(path, "a", "e 0.5\n");
    assert_ok(ru_source_look(&s, &n, &err), err);
    assert_int_equal(n.requests, 1);
    assert_ok(ru_source_look(&s, &n, &err), err); /* bad lines of long ago are no fault */
    FILE *f = fopen(path, "r+");
    assert_true(f != NULL && fseek(f, 5 << 20, SEEK_END) == 0);
    assert_true(fputs("x\nf 0.6\n", f) >= 0 && fclose(f) == 0);
    uint32_t heard = 0;
    for (uint32_t k = 0; k < 3; k++) { /* past a line without an end */
        assert_ok(ru_source_look(&s, &n, &err), err);
        heard += n.requests;
    }
    assert_int_equal(heard, 1);
    assert_ok(ru_path_remove(dir, &err), err);
}

static uint32_t page(ru_source *s, ru_source_news *n, double low, double mid, double all)
{
    char text[1024];
    ru_err err;
    (void)snprintf(
        text, sizeof text,
        "# HELP t x\nt_bucket{model=\"a\",le=\"0.1\"} %g\nt_bucket{model=\"a\",le=\"0.2\"} "
        "%g\nt_bucket{model=\"a\",le=\"+Inf\"} %g\nt_sum 3\nt_bucket{model=\"b\",le=\"+Inf\"} "
        "0\nt_bucket{le=\"nan\"} 9\nt_bucket{le=\"-1\"} 9\nu_bucket{le=\"0.1\"} 99\n",
        low, mid, all);
    n->n = n->requests = 0;
    assert_ok(rui_source_page(s, ru_str_c(text), n, &err), err);
    s->begun = true;
    return n->requests;
}

static void test_metrics(void **state)
{
    (void)state;
    static ru_source s;
    static ru_source_news n;
    ru_err err;
    s = (ru_source){.opt = {.metrics = "http://x/metrics", .histogram = "t"}};
    assert_int_equal(page(&s, &n, 5, 7, 8), 0);
    assert_int_equal(page(&s, &n, 9, 13, 15), 7);
    double sum = 0;
    for (uint32_t k = 0; k < n.n; k++) {
        sum += n.latency_s[k];
        assert_true(n.latency_s[k] > 0 && n.latency_s[k] <= 0.2);
    }
    assert_true(fabs(sum - (4 * 0.05 + 2 * 0.15 + 1 * 0.2)) < 0.05);
    assert_int_equal(page(&s, &n, 1, 2, 3), 3);               /* it began anew */
    assert_int_equal(page(&s, &n, 1.5, 2.9, 1e300), 1000000); /* no counts at all */
    assert_true(n.n <= n.requests);
    assert_int_equal(page(&s, &n, 0, 0, 1), 1);
    assert_int_equal(page(&s, &n, 100001, 100002, 100003), 100002);
    assert_true(n.n <= RU_SOURCE_MAX && n.n > RU_SOURCE_MAX / 2);
    assert_int_equal(rui_source_page(&s, ru_str_c("u 1\n"), &n, &err), RU_E_DATA);
}

RU_TESTS(burst_source, cmocka_unit_test(test_lines), cmocka_unit_test(test_log),
         cmocka_unit_test(test_metrics))
