/* Whose messages count. */
#include "test/test.h"
#include "train/elastic/elastic_impl.h"

/* The leader ends when its members have said goodbye; a process that left the group or was never in
 * it says nothing for them. */
static void only_members_say_goodbye(void **state)
{
    (void)state;
    rui_el_member at[3] = {0};
    ru_elastic e = {0};
    ru_effects fx = {0};
    e.v.n = 3;
    for (uint32_t k = 0; k < 3; k++) {
        at[k].node.v = 10 + k;
    }
    e.v.at = at;
    e.v.leader.v = 10;
    for (uint32_t k = 0; k < 3; k++) {
        const ru_event ev = {.what = RUI_EL_BYE_MSG, .node = {.v = k == 0 ? 99 : 10 + k}};
        rui_el_hear(&e, &ev, &fx);
        assert_int_equal(e.lead.n_bye, k);
    }
}

RU_TESTS(train_elastic_hear, cmocka_unit_test(only_members_say_goodbye))
