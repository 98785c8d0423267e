/* A model with branches as ONNX: placed-net FILE WIDTH... (images of 3 x 32 x 32, 10 classes). */
#include <stdio.h>
#include <stdlib.h>

#include "bench/train/placed.h"

int main(int argc, char **argv)
{
    int64_t widths[RUI_PLACED_BRANCHES_MAX];
    ru_err err = {0};
    ru_arena arena;
    int n = argc - 2;
    if (n < 1 || n > RUI_PLACED_BRANCHES_MAX) {
        (void)fprintf(stderr, "usage: placed-net FILE WIDTH... (at most %d)\n",
                      RUI_PLACED_BRANCHES_MAX);
        return 2;
    }
    for (int k = 0; k < n; k++) {
        widths[k] = strtoll(argv[2 + k], NULL, 10);
    }
    ru_arena_init(&arena, 0);
    const rui_placed_net_shape shape = {.widths = widths, .n = (uint32_t)n};
    ru_status st = rui_placed_net(&shape, argv[1], &arena, &err);
    if (st != RU_OK) {
        (void)fprintf(stderr, "placed-net: %s\n", err.text);
    }
    ru_arena_fini(&arena);
    return ru_status_exit_code(st);
}
