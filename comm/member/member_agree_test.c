/* What all members agree on: who differs is told in what, for good, and so is the leader. */
#include <stdio.h>
#include <string.h>

#include "comm/member/member_impl.h"
#include "lab/worlds/member_world.h"
#include "test/test.h"

static const char *differences(const char *mine, const char *theirs, char into[RUI_M_REFUSED_MAX])
{
    ru_text t = ru_text_into(into, RUI_M_REFUSED_MAX);
    into[0] = '\0';
    (void)rui_m_differences(ru_str_c(mine), ru_str_c(theirs), &t);
    return into;
}

static void each_difference_is_named(void **state)
{
    (void)state;
    char s[RUI_M_REFUSED_MAX];
    assert_string_equal(differences("", "", s), "");
    assert_string_equal(differences("a 1\nb 2\n", "b 2\na 1\n", s), "");
    assert_string_equal(differences("a 1\nb 2\n", "b 3\n", s), "b is 2 here, 3 there");
    assert_string_equal(differences("b 3\n", "a 1\nb 2\n", s), "b is 3 here, 2 there");
    assert_string_equal(differences("a 1\nab 2", "ab 2\n", s), ""); /* only one of them has it */
    assert_string_equal(differences("a \nb x y", "a\nb x  y", s), "b is x y here, x  y there");
    assert_string_equal(differences("a", "a 1", s), "a is empty here, 1 there");
    assert_string_equal(
        differences("a 1\nb 1\nc 1\nd 1\ne 1\nf 1", "f 2\na 2\nb 2\nc 2\nd 2\ne 2", s),
        "a is 1 here, 2 there; b is 1 here, 2 there; c is 1 here, 2 there; d is 1 "
        "here, 2 there; and 2 more");
    assert_string_equal(differences("a \x1b[2J", "a \n", s), "a is ?[2J here, empty there");
}

/* Hostile: as long as it may be, and every line a name. */
static void the_longest_text_is_read(void **state)
{
    (void)state;
    static char text[RU_MEMBER_AGREED_MAX];
    memset(text, 'x', sizeof text - 1);
    for (uint32_t k = 1; k < sizeof text - 1; k += 2) {
        text[k] = k % 4 == 1 ? '\n' : ' ';
    }
    char s[RUI_M_REFUSED_MAX];
    assert_string_equal(differences("x 1\n", text, s), "x is 1 here, empty there");
}

static void who_differs_is_refused(void **state)
{
    (void)state;
    static const char *const words[] = {"lr 0.1\ndata 7\n", "lr 0.1\ndata 7\n", "lr 0.5\ndata 7\n",
                                        "lr 0.1\ndata 7\nmore 1\n"};
    world *w = world_new(&(world_options){
        .seed = 3, .nodes = 4, .agreed = {words[0], words[1], words[2], words[3]}});
    world_start(w, 0, -1);
    for (uint32_t i = 1; i < 4; i++) { /* one by a member that does not lead */
        world_start(w, i, i == 2 ? 1 : 0);
        assert_true(world_run_ms(w, 1500));
    }
    assert_int_equal(ru_member_view(world_at(w, 0)->m)->n, 3);
    assert_true(world_at(w, 2)->out);
    assert_non_null(strstr(world_at(w, 2)->why, "lr is 0.5 here, 0.1 there"));
    assert_int_equal(world_at(w, 2)->n_outs, 1);
    ru_member_facts f;
    ru_member_facts_get(world_at(w, 0)->m, &f);
    assert_int_equal(f.refused, 1);
    assert_string_equal(f.refused_why, "lr is 0.1 here, 0.5 there");
    world_free(w);
}

/* Also a leader that took over: it is asked by its own words. */
static void a_successor_refuses_as_well(void **state)
{
    (void)state;
    world *w =
        world_new(&(world_options){.seed = 4, .nodes = 3, .agreed = {"lr 1", "lr 1", "lr 2"}});
    world_start(w, 0, -1);
    world_start(w, 1, 0);
    assert_true(world_run_ms(w, 1500));
    world_kill(w, 0);
    assert_true(world_run_ms(w, 2500));
    world_start(w, 2, 1);
    assert_true(world_run_ms(w, 1500));
    assert_true(world_at(w, 2)->out);
    assert_int_equal(ru_member_view(world_at(w, 1)->m)->n, 1);
    world_free(w);
}

RU_TESTS(comm_member_agree, cmocka_unit_test(each_difference_is_named),
         cmocka_unit_test(the_longest_text_is_read), cmocka_unit_test(who_differs_is_refused),
         cmocka_unit_test(a_successor_refuses_as_well))
