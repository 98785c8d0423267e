/* Names and print of collectives. */
#include "world/coll.h"

#include <string.h>

#include "base/str.h"

static const char *const op_names[RU_COLL_OPS] = {
    "all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast", "all-to-all", "barrier"};
static const char *const algo_names[RU_COLL_ALGOS] = {"ring",        "halving", "doubling", "tree",
                                                      "double-tree", "direct",  "hierarchy"};

static const char *const step_words[RU_COLL_STEP_KINDS][2] = {{"send", "to"},  {"take", "from"},
                                                              {"add", "from"}, {"keep", "from"},
                                                              {"fold", NULL},  {"place", NULL}};

const char *ru_coll_op_name(ru_coll_op op)
{
    return (uint32_t)op < RU_COLL_OPS ? op_names[op] : "unknown";
}

const char *ru_coll_algo_name(ru_coll_algo algo)
{
    return (uint32_t)algo < RU_COLL_ALGOS ? algo_names[algo] : "unknown";
}

ru_coll_op ru_coll_op_find(const char *name)
{
    uint32_t i = 0;
    while (i < RU_COLL_OPS && strcmp(op_names[i], name) != 0) {
        i++;
    }
    return (ru_coll_op)i;
}

ru_coll_algo ru_coll_algo_find(const char *name)
{
    uint32_t i = 0;
    while (i < RU_COLL_ALGOS && strcmp(algo_names[i], name) != 0) {
        i++;
    }
    return (ru_coll_algo)i;
}

static void print_step(ru_text *t, const ru_coll_step *s)
{
    const char *const *words = step_words[s->kind < RU_COLL_STEP_KINDS ? s->kind : 0];
    ru_text_putf(t, " %s %u", words[0], s->block);
    if (s->n_blocks != 1) {
        ru_text_putf(t, "..%u", s->block + s->n_blocks - 1);
    }
    if (words[1] != NULL) {
        ru_text_putf(t, " %s %u (%u)%s", words[1], s->peer, s->tag, s->before ? " before" : "");
    }
}

const char *ru_coll_print(const ru_coll_schedule *s, ru_arena *arena)
{
    ru_text t = ru_text_arena(arena);
    ru_text_putf(&t, "%s by %s, %u ranks, %u blocks\n", ru_coll_op_name(s->op),
                 ru_coll_algo_name(s->algo), s->n_ranks, s->n_blocks);
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        ru_text_putf(&t, "rank %u:", r);
        for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            ru_text_put(&t, i > s->begin[r] ? "," : "");
            print_step(&t, &s->steps[i]);
        }
        ru_text_put(&t, "\n");
    }
    return t.cut ? NULL : t.p;
}
