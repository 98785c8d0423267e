#include "test/test.h"

#include <stdlib.h>

#include "env/process/self.h"
#include "fleet/client/client_impl.h"

/* A server's START whose text tells of `n` tensors, the first of rank `rank`, and ends there. */
static bool told(uint32_t n, uint32_t rank, int64_t *memory)
{
    uint8_t body[64];
    ru_fed_client *c = calloc(1, sizeof *c);
    ru_wire_out o = ru_wire_out_into(body, sizeof body);
    ru_wire_put_u32(&o, n);
    ru_wire_put_u32(&o, 1); /* a name of one letter */
    ru_wire_put_bytes(&o, "w", 1);
    ru_wire_put_u32(&o, rank);
    ru_wire_put_u64(&o, 6);
    c->start.count = 6;
    c->start.params = 6;
    ru_arena_init(&c->arena, 0);
    bool fine = rui_fed_client_model(c, body, ru_wire_size(&o));
    *memory = c->arena.used_bytes;
    ru_arena_fini(&c->arena);
    free(c);
    return fine;
}

/* What cannot be in the text takes no memory. */
static void test_a_model_is_no_larger_than_its_text(void **state)
{
    (void)state;
    int64_t memory;
    assert_true(told(1, 1, &memory));
    assert_false(told(1 << 20, 1, &memory));
    assert_true(memory < 1024);
    assert_false(told(1, 255, &memory));
    assert_true(memory < 1024);
}

/* The signals of others stay with them when a client cannot be opened. */
static void test_one_that_fails_leaves_signals(void **state)
{
    (void)state;
    const ru_fed_client_options o[] = {
        {.address = "nowhere", .signals = true},
        {.address = "127.0.0.1:1", .token = "none", .signals = true}};
    ru_err err;
    ru_fed_client *c;
    ru_self_stop_watch();
    int fd = ru_self_stop_fd();
    for (uint32_t k = 0; k < RU_ARRAY_LEN(o); k++) {
        assert_int_equal(ru_fed_client_open(&o[k], &c, &err), RU_E_USAGE);
        assert_int_equal(ru_self_stop_fd(), fd);
    }
    ru_self_stop_unwatch();
    assert_int_equal(ru_self_stop_fd(), -1);
}

RU_TESTS(fleet_client, cmocka_unit_test(test_one_that_fails_leaves_signals),
         cmocka_unit_test(test_a_model_is_no_larger_than_its_text))
