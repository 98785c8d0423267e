/* Pictures of lines: round ticks, odd numbers, foreign names. */
#include "tool/cmd/plot.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

static void ticks_are_round(void **state)
{
    (void)state;
    assert_true(fabs(ru_plot_step(0, 1, 5) - 0.2) < 1e-12);
    assert_true(fabs(ru_plot_step(0, 0.03, 5) - 0.01) < 1e-12);
    assert_true(ru_plot_step(0, 900, 6) == 200);
    assert_true(ru_plot_step(7, 7, 5) == 1);
    assert_true(ru_plot_step(0, (double)INFINITY, 5) == 1);
}

static int64_t count(const char *text, const char *what)
{
    int64_t n = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) {
        n++;
    }
    return n;
}

/* No line leaves the picture or writes what is no number. */
static void odd_values_leave_gaps(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const double x[] = {1, 2, 3, 4}, y[] = {1, RU_NAN, (double)INFINITY, 2}, same[] = {5, 5, 5, 5};
    const ru_plot_line lines[] = {{.name = "a<b>&\"c\"", .x = x, .y = y, .n = 4, .marks = true},
                                  {.name = "constant", .x = x, .y = same, .n = 4, .style = 7},
                                  {.name = "empty", .style = 2}};
    const ru_plot_line faint = {.name = "behind", .x = x, .y = same, .n = 4, .faint = true};
    const ru_plot_panel panels[] = {{"first", lines, 3},
                                    {"constant", lines + 1, 1},
                                    {"none", lines + 2, 1},
                                    {"pale", &faint, 1}};
    ru_text t = ru_text_arena(&a);
    ru_plot_svg(panels, 4, "step", false, &t);
    assert_null(strstr(t.p, "behind")); /* no legend */
    assert_int_equal(count(t.p, "class=\"fl0\""), 1);
    assert_false(t.cut);
    assert_null(strstr(t.p, "nan"));
    assert_null(strstr(t.p, "inf"));
    assert_null(strstr(t.p, "a<b"));
    assert_non_null(strstr(t.p, "a&#60;b&#62;&#38;&#34;c&#34;"));
    assert_int_equal(count(t.p, "<circle"), 3); /* two points and the legend */
    assert_int_equal(count(t.p, "class=\"frame\""), 4);
    assert_int_equal(count(t.p, "<svg"), count(t.p, "</svg>"));
    ru_arena_fini(&a);
}

/* A long line is drawn by means: no more points than the picture can show. */
static void long_lines_are_thinned(void **state)
{
    (void)state;
    enum { N = 100000 };
    ru_arena a;
    ru_arena_init(&a, 0);
    double *x = RU_NEW(&a, double, N), *y = RU_NEW(&a, double, N);
    for (int64_t i = 0; i < N; i++) {
        x[i] = (double)i;
        y[i] = i % 2 == 0 ? 1.0 : 3.0;
    }
    const ru_plot_line line = {.name = "long", .x = x, .y = y, .n = N};
    ru_text t = ru_text_arena(&a);
    ru_plot_svg(&(ru_plot_panel){"long", &line, 1}, 1, "step", false, &t);
    assert_true(t.n < 40000);
    assert_true(count(t.p, "L") > 900);
    ru_arena_fini(&a);
}

/* Powers of ten below a logarithmic axis, none twice. */
static void decades_have_their_ticks(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const double x[] = {-7, -3, 1}, y[] = {1, 2, 3};
    const ru_plot_line line = {.name = "sweep", .x = x, .y = y, .n = 3};
    ru_text t = ru_text_arena(&a);
    ru_plot_svg(&(ru_plot_panel){"loss", &line, 1}, 1, "learning rate", true, &t);
    static const char *const want[] = {">1e-06<", ">0.0001<", ">0.01<", ">1<"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(want); k++) {
        assert_non_null(strstr(t.p, want[k]));
    }
    assert_int_equal(count(t.p, "text-anchor=\"middle\""), 4 + 1); /* and the name */
    ru_arena_fini(&a);
}

RU_TESTS(tool_plot, cmocka_unit_test(ticks_are_round), cmocka_unit_test(odd_values_leave_gaps),
         cmocka_unit_test(long_lines_are_thinned), cmocka_unit_test(decades_have_their_ticks))
