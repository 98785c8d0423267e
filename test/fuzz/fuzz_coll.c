/* Any list of steps is accepted or refused, never worse. */
#include <stddef.h>
#include <string.h>

#include "plan/net/coll.h"

enum { RANKS_MAX = 6, STEPS_MAX = 64, BYTES_A_STEP = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 5 + RANKS_MAX) {
        return 0;
    }
    uint32_t begin[RANKS_MAX + 1] = {0};
    ru_coll_step steps[STEPS_MAX];
    ru_coll_schedule s = {.op = (ru_coll_op)(data[0] % (RU_COLL_OPS + 1)),
                          .algo = (ru_coll_algo)(data[1] % (RU_COLL_ALGOS + 1)),
                          .n_ranks = 1 + data[2] % RANKS_MAX,
                          .n_blocks = data[3] % 9,
                          .root = data[4] % 8,
                          .begin = begin,
                          .steps = steps};
    uint32_t n = (uint32_t)((size - 5 - RANKS_MAX) / BYTES_A_STEP);
    n = n < STEPS_MAX ? n : STEPS_MAX;
    for (uint32_t r = 0; r < s.n_ranks; r++) {
        uint32_t end = begin[r] + data[5 + r] % STEPS_MAX;
        begin[r + 1] = r + 1 == s.n_ranks || end > n ? n : end;
    }
    const uint8_t *p = data + 5 + RANKS_MAX;
    for (uint32_t i = 0; i < n; i++, p += BYTES_A_STEP) {
        steps[i] = (ru_coll_step){.kind = p[0] % 8,
                                  .before = p[1] % 3,
                                  .peer = p[2] % 8,
                                  .tag = p[3] % 8,
                                  .block = p[4] % 10,
                                  .n_blocks = p[5] % 10};
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_err err;
    (void)(ru_plan_coll_check(&s, &scratch, &err) == RU_OK);
    ru_arena_fini(&scratch);
    return 0;
}
