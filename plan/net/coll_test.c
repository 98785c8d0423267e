/* Schedules of collectives: every op, algorithm and root for small numbers of ranks, run on numbers
 * by a plain executor with random timing; the judge accepts them and refuses what is corrupted. */
#include "plan/net/coll.h"
#include "test/test.h"

#include <string.h>

#include "base/rng.h"
#include "base/str.h"

static const char *const step_words[RU_COLL_STEP_KINDS][2] = {{"send", "to"},  {"take", "from"},
                                                              {"add", "from"}, {"keep", "from"},
                                                              {"fold", NULL},  {"place", NULL}};

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

/* One line a rank: "rank 2: send 0 to 3 (0), add 2 from 1 (0), ..." with tags in brackets. */
static const char *print(const ru_coll_schedule *s, ru_arena *arena)
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

typedef struct fixture {
    ru_arena out, scratch;
} fixture;

static void open(fixture *f)
{
    ru_arena_init(&f->out, 0);
    ru_arena_init(&f->scratch, 0);
}

static void close(fixture *f)
{
    ru_arena_fini(&f->out);
    ru_arena_fini(&f->scratch);
}

/* -- the plain executor: one number a block, every pair of steps compared -----------------------
 */

typedef struct machine {
    const ru_coll_schedule *s;
    uint32_t n;
    uint32_t *rank, *mate; /* mate UINT32_MAX: none */
    uint8_t *done;
    int64_t *mine, *aside, *wire; /* [n_ranks * n_blocks] twice; [n][n_blocks] */
    bool *full;                   /* [n_ranks * n_blocks] something stands aside */
    bool *moved;                  /* [n] */
} machine;

static void machine_init(machine *m, const ru_coll_schedule *s, ru_arena *a)
{
    *m = (machine){.s = s, .n = s->begin[s->n_ranks]};
    int64_t cells = (int64_t)s->n_ranks * s->n_blocks;
    m->rank = RU_NEW(a, uint32_t, m->n);
    m->mate = RU_NEW(a, uint32_t, m->n);
    m->done = RU_NEW(a, uint8_t, m->n);
    m->mine = RU_NEW(a, int64_t, cells);
    m->aside = RU_NEW(a, int64_t, cells);
    m->full = RU_NEW(a, bool, cells);
    m->moved = RU_NEW(a, bool, m->n);
    m->wire = RU_NEW(a, int64_t, (int64_t)m->n * s->n_blocks);
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            m->rank[i] = r;
        }
        for (uint32_t b = 0; b < s->n_blocks; b++) {
            m->mine[r * s->n_blocks + b] = (int64_t)(r + 1) * 1000 + b;
        }
    }
    for (uint32_t i = 0; i < m->n; i++) {
        m->mate[i] = UINT32_MAX;
        for (uint32_t k = 0; k < m->n; k++) {
            const ru_coll_step *x = &s->steps[i], *y = &s->steps[k];
            bool pair = (x->kind == RU_COLL_SEND && ru_coll_step_receives(y)) ||
                        (y->kind == RU_COLL_SEND && ru_coll_step_receives(x));
            if (pair && x->peer == m->rank[k] && y->peer == m->rank[i] && x->tag == y->tag) {
                m->mate[i] = k;
            }
        }
    }
}

static bool touches_mine(const ru_coll_step *x)
{
    return x->kind != RU_COLL_RECV_ASIDE;
}

static bool touches_aside(const ru_coll_step *x)
{
    return x->kind == RU_COLL_RECV_ASIDE || x->kind == RU_COLL_FOLD || x->kind == RU_COLL_PLACE;
}

static bool collide(const ru_coll_step *x, const ru_coll_step *y)
{
    bool meet = x->block < y->block + y->n_blocks && y->block < x->block + x->n_blocks;
    bool reads = x->kind == RU_COLL_SEND && y->kind == RU_COLL_SEND;
    bool common = (touches_mine(x) && touches_mine(y)) || (touches_aside(x) && touches_aside(y));
    return meet && common && !reads;
}

static bool is_free(const machine *m, uint32_t i)
{
    for (uint32_t k = m->s->begin[m->rank[i]]; k < i; k++) {
        if (m->done[k] == 0 && collide(&m->s->steps[k], &m->s->steps[i])) {
            return false;
        }
    }
    return true;
}

/* Do what step i can do now; false: nothing. */
static bool advance(machine *m, uint32_t i)
{
    const ru_coll_step *x = &m->s->steps[i];
    uint32_t mate = m->mate[i], nb = m->s->n_blocks;
    int64_t *mine = m->mine + (size_t)m->rank[i] * nb, *aside = m->aside + (size_t)m->rank[i] * nb;
    bool *full = m->full + (size_t)m->rank[i] * nb;
    if (m->done[i] != 0 || !is_free(m, i)) {
        return false;
    }
    if (x->kind == RU_COLL_SEND) {
        bool open =
            mate != UINT32_MAX && (m->s->steps[mate].kind != RU_COLL_RECV || is_free(m, mate));
        for (uint32_t b = 0; b < x->n_blocks && open; b++) {
            m->wire[(size_t)mate * nb + b] = mine[x->block + b];
        }
        m->done[i] = open;
        if (open) {
            m->moved[mate] = true;
        }
        return open;
    }
    if (ru_coll_step_receives(x) && !m->moved[i]) {
        return false;
    }
    for (uint32_t b = 0; b < x->n_blocks; b++) {
        uint32_t at = x->block + b;
        int64_t in = m->wire[(size_t)i * nb + b];
        switch ((ru_coll_step_kind)x->kind) {
        case RU_COLL_RECV:
            mine[at] = in;
            break;
        case RU_COLL_REDUCE_RECV:
            mine[at] += in;
            break;
        case RU_COLL_RECV_ASIDE:
            aside[at] = full[at] ? aside[at] + in : in;
            full[at] = true;
            break;
        case RU_COLL_FOLD:
            mine[at] += aside[at];
            full[at] = false;
            break;
        case RU_COLL_PLACE:
            mine[at] = aside[at];
            full[at] = false;
            break;
        case RU_COLL_SEND:
        case RU_COLL_STEP_KINDS:
            break;
        }
    }
    m->done[i] = 1;
    return true;
}

/* Until nothing moves; true when all is done. */
static bool machine_run(machine *m, ru_rng *rng, ru_arena *a)
{
    uint32_t *order = RU_NEW(a, uint32_t, m->n);
    bool moved = true;
    while (moved) {
        moved = false;
        ru_rng_shuffle(rng, order, m->n);
        for (uint32_t k = 0; k < m->n; k++) {
            moved = advance(m, order[k]) || moved;
        }
    }
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->done[i] == 0) {
            return false;
        }
    }
    return true;
}

static bool machine_right(const machine *m)
{
    const ru_coll_schedule *s = m->s;
    uint32_t n = s->n_ranks;
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t b = 0; b < s->n_blocks; b++) {
            int64_t have = m->mine[r * s->n_blocks + b];
            int64_t sum = 1000 * (int64_t)n * (n + 1) / 2 + (int64_t)n * b;
            bool holds = s->op == RU_COLL_ALL_REDUCE ||
                         (s->op == RU_COLL_REDUCE_SCATTER && b == r) ||
                         (s->op == RU_COLL_REDUCE && r == s->root);
            if ((holds && have != sum) ||
                (s->op == RU_COLL_ALL_GATHER && have != 1000 * (int64_t)(b + 1) + b) ||
                (s->op == RU_COLL_BROADCAST && have != 1000 * (int64_t)(s->root + 1) + b) ||
                (s->op == RU_COLL_ALL_TO_ALL && have != 1000 * (int64_t)(b + 1) + r)) {
                return false;
            }
        }
    }
    return true;
}

/* -- tests --------------------------------------------------------------------------------------
 */

static ru_coll_schedule plan_of(fixture *f, const ru_coll_in *in)
{
    ru_coll_schedule s;
    ru_err err;
    assert_ok(ru_plan_coll(in, &f->out, &s, &err), err);
    if (ru_plan_coll_check(&s, &f->scratch, &err) != RU_OK) {
        fail_msg("%s by %s, %u ranks, root %u: %s\n%s", ru_coll_op_name(in->op),
                 ru_coll_algo_name(in->algo), in->n_ranks, in->root, err.text,
                 in->n_ranks < 20 ? print(&s, &f->out) : "");
    }
    return s;
}

static void assert_same_list(fixture *f, const ru_coll_in *in, const ru_coll_schedule *s)
{
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        ru_coll_schedule one;
        ru_err err;
        assert_ok(ru_plan_coll_rank(in, r, &f->out, &one, &err), err);
        uint32_t n = s->begin[r + 1] - s->begin[r];
        assert_int_equal(one.begin[r + 1] - one.begin[r], n);
        assert_int_equal(one.begin[in->n_ranks], n);
        assert_int_equal(one.n_blocks, s->n_blocks);
        assert_memory_equal(one.steps, s->steps + s->begin[r], n * sizeof *s->steps);
    }
}

/* Plan, judge and run one question; `numbers`: run it on numbers too. */
static void try_one(fixture *f, const ru_coll_in *in, bool numbers, ru_rng *rng)
{
    ru_arena_mark mark = ru_arena_mark_get(&f->out);
    ru_coll_schedule s = plan_of(f, in);
    if (numbers) {
        machine m;
        machine_init(&m, &s, &f->out);
        assert_true(machine_run(&m, rng, &f->out));
        assert_true(machine_right(&m));
        assert_same_list(f, in, &s);
    }
    ru_arena_rewind(&f->out, mark);
}

static bool has_root(ru_coll_op op, ru_coll_algo algo)
{
    return op == RU_COLL_REDUCE || op == RU_COLL_BROADCAST ||
           (op == RU_COLL_ALL_REDUCE && algo == RU_ALGO_HIERARCHY);
}

/* All ops, algorithms and (up to `roots`) roots for n ranks; hosts of `per_host` ranks. */
static void try_all(fixture *f, uint32_t n, uint32_t roots, bool numbers, ru_rng *rng)
{
    uint16_t host[64];
    for (uint32_t r = 0; r < n; r++) {
        host[r] = (uint16_t)(n % 3 == 0 ? 7 + r % 4 : r / 3); /* scattered, or in rows */
    }
    for (uint32_t op = 0; op < RU_COLL_OPS; op++) {
        for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
            for (uint32_t leaders = 0; leaders < RU_COLL_ALGOS; leaders++) {
                bool nested = algo == RU_ALGO_HIERARCHY;
                bool does = ru_plan_coll_does((ru_coll_algo)algo, (ru_coll_op)op);
                bool inner = leaders != RU_ALGO_HIERARCHY &&
                             ru_plan_coll_does((ru_coll_algo)leaders, (ru_coll_op)op);
                if (!does || (nested && !inner) || (!nested && leaders > 0)) {
                    continue;
                }
                uint32_t n_roots = has_root((ru_coll_op)op, (ru_coll_algo)algo) ? roots : 1;
                for (uint32_t root = 0; root < n_roots && root < n; root++) {
                    ru_coll_in in = {.op = (ru_coll_op)op,
                                     .algo = (ru_coll_algo)algo,
                                     .n_ranks = n,
                                     .root = root,
                                     .host = host,
                                     .leaders = (ru_coll_algo)leaders};
                    try_one(f, &in, numbers, rng);
                }
            }
        }
    }
}

static void test_all_up_to_17_ranks(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t n = 1; n <= 17; n++) {
        try_all(&f, n, n, n <= 9, &rng);
    }
    close(&f);
}

static void test_more_ranks(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {31, 32, 33, 64};
    fixture f;
    open(&f);
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sizes); k++) {
        try_all(&f, sizes[k], 3, false, &rng);
    }
    close(&f);
}

/* Thousands of ranks: judged whole where the lists are short, by one rank elsewhere. */
static void test_a_thousand_ranks(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    uint16_t host[RU_COLL_RANKS_MAX];
    for (uint32_t r = 0; r < RU_COLL_RANKS_MAX; r++) {
        host[r] = (uint16_t)(r / 8);
    }
    static const ru_coll_algo few[] = {RU_ALGO_DOUBLING, RU_ALGO_TREE, RU_ALGO_DOUBLE_TREE};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(few); k++) {
        ru_coll_in in = {.algo = few[k], .n_ranks = 1000};
        plan_of(&f, &in);
    }
    ru_coll_in in = {
        .algo = RU_ALGO_HIERARCHY, .leaders = RU_ALGO_TREE, .n_ranks = 1000, .host = host};
    plan_of(&f, &in);
    for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
        ru_coll_schedule s;
        ru_err err;
        in = (ru_coll_in){.algo = (ru_coll_algo)algo, .n_ranks = RU_COLL_RANKS_MAX, .host = host};
        assert_ok(ru_plan_coll_rank(&in, 4095, &f.out, &s, &err), err);
        assert_true(s.begin[4096] > 0);
    }
    close(&f);
}

typedef struct corruption {
    uint64_t refused, legal;
} corruption;

/* The schedule with steps[i] changed: refused, or right on numbers all the same. */
static void judge_changed(fixture *f, const ru_coll_schedule *s, ru_rng *rng, corruption *c)
{
    ru_err err;
    ru_arena_mark mark = ru_arena_mark_get(&f->scratch);
    if (ru_plan_coll_check(s, &f->scratch, &err) == RU_E_INFEASIBLE) {
        c->refused++;
        return;
    }
    machine m;
    machine_init(&m, s, &f->scratch);
    if (!machine_run(&m, rng, &f->scratch) || !machine_right(&m)) {
        fail_msg("accepted but wrong: %s", print(s, &f->out));
    }
    c->legal++;
    ru_arena_rewind(&f->scratch, mark);
}

static void corrupt_one(fixture *f, const ru_coll_schedule *s, ru_coll_step *x, ru_rng *rng,
                        corruption *c)
{
    ru_coll_step good = *x;
    for (uint32_t kind = 0; kind <= RU_COLL_STEP_KINDS; kind++) {
        x->kind = (uint8_t)kind;
        if (kind != good.kind) {
            judge_changed(f, s, rng, c);
        }
    }
    *x = good;
    for (uint32_t peer = 0; peer <= s->n_ranks; peer++) {
        x->peer = (uint16_t)peer;
        if (peer != good.peer) {
            judge_changed(f, s, rng, c);
        }
    }
    *x = good;
    for (uint32_t d = 1; d <= 4; d++) {
        x->tag = (uint16_t)(good.tag + d - (d > 2 ? 5 : 0));
        judge_changed(f, s, rng, c);
    }
    *x = good;
    for (uint32_t block = 0; block <= s->n_blocks; block++) {
        x->block = block;
        if (block != good.block) {
            judge_changed(f, s, rng, c);
        }
    }
    *x = good;
    for (uint32_t n = 0; n <= s->n_blocks + 1; n++) {
        x->n_blocks = n;
        if (n != good.n_blocks) {
            judge_changed(f, s, rng, c);
        }
    }
    *x = good;
}

static void corrupt(fixture *f, const ru_coll_in *in, ru_rng *rng, corruption *c)
{
    ru_arena_mark mark = ru_arena_mark_get(&f->out);
    ru_coll_schedule s = plan_of(f, in);
    uint32_t n = s.begin[s.n_ranks];
    ru_coll_step *steps = ru_arena_copy(&f->out, s.steps, (int64_t)(n * sizeof *steps), 8);
    uint32_t *begin =
        ru_arena_copy(&f->out, s.begin, (int64_t)((s.n_ranks + 1) * sizeof *begin), 8);
    s.steps = steps;
    s.begin = begin;
    for (uint32_t i = 0; i < n; i++) {
        corrupt_one(f, &s, &steps[i], rng, c);
    }
    for (uint32_t r = 0; r + 1 < s.n_ranks; r++) { /* a step too many here, one too few there */
        for (int32_t d = -1; d <= 1; d += 2) {
            begin[r + 1] += (uint32_t)d;
            judge_changed(f, &s, rng, c);
            begin[r + 1] -= (uint32_t)d;
        }
    }
    for (uint32_t i = 0; i + 1 < n; i++) { /* neighbours change places: legal when they are apart */
        ru_coll_step x = steps[i];
        steps[i] = steps[i + 1];
        steps[i + 1] = x;
        judge_changed(f, &s, rng, c);
        steps[i + 1] = steps[i];
        steps[i] = x;
    }
    ru_arena_rewind(&f->out, mark);
}

static void test_corruptions_are_refused(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    ru_rng rng = ru_rng_from(ru_test_seed(), 2);
    corruption c = {0};
    static const uint16_t host[] = {0, 1, 0, 1, 2};
    for (uint32_t n = 2; n <= 5; n++) {
        for (uint32_t op = 0; op < RU_COLL_OPS; op++) {
            for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
                ru_coll_in in = {
                    .op = (ru_coll_op)op, .algo = (ru_coll_algo)algo, .n_ranks = n, .host = host};
                in.root = has_root(in.op, in.algo) ? n / 2 : 0;
                if (ru_plan_coll_does(in.algo, in.op)) {
                    corrupt(&f, &in, &rng, &c);
                }
            }
        }
    }
    assert_true(c.refused > 20000);
    assert_true(c.legal < c.refused / 20);
    close(&f);
}

/* What no change of one step makes: a receive twice, and blocks that both ranks want to overwrite
 * before they are sent. */
static void test_two_wrong_steps_are_refused(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    enum { S = RU_COLL_SEND, R = RU_COLL_RECV };
    static const uint32_t begin[] = {0, 2, 4}, more[] = {0, 1, 3};
    const ru_coll_step twice[] = {{.kind = S, .peer = 1, .n_blocks = 1},
                                  {.kind = R, .peer = 0, .n_blocks = 1},
                                  {.kind = R, .peer = 0, .n_blocks = 1}};
    const ru_coll_step circle[] = {{.kind = S, .peer = 1, .n_blocks = 1},
                                   {.kind = R, .peer = 1, .tag = 1, .n_blocks = 1},
                                   {.kind = S, .peer = 0, .tag = 1, .n_blocks = 1},
                                   {.kind = R, .peer = 0, .n_blocks = 1}};
    ru_coll_schedule s = {.op = RU_COLL_BROADCAST, .n_ranks = 2, .n_blocks = 1};
    ru_err err;
    s.begin = more;
    s.steps = twice;
    assert_int_equal(ru_plan_coll_check(&s, &f.scratch, &err), RU_E_INFEASIBLE);
    assert_non_null(strstr(err.text, "has no match"));
    s.begin = begin;
    s.steps = circle;
    assert_int_equal(ru_plan_coll_check(&s, &f.scratch, &err), RU_E_INFEASIBLE);
    assert_non_null(strstr(err.text, "waits forever"));
    close(&f);
}

static void test_bad_questions(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    ru_coll_schedule s;
    ru_err err;
    ru_coll_in in = {.n_ranks = 0};
    assert_int_equal(ru_plan_coll(&in, &f.out, &s, &err), RU_E_ARG);
    in.n_ranks = RU_COLL_RANKS_MAX + 1;
    assert_int_equal(ru_plan_coll(&in, &f.out, &s, &err), RU_E_ARG);
    in = (ru_coll_in){.n_ranks = 3, .root = 3};
    assert_int_equal(ru_plan_coll(&in, &f.out, &s, &err), RU_E_ARG);
    in = (ru_coll_in){.n_ranks = 3, .op = RU_COLL_OPS};
    assert_int_equal(ru_plan_coll(&in, &f.out, &s, &err), RU_E_ARG);
    in = (ru_coll_in){.n_ranks = 3, .op = RU_COLL_ALL_TO_ALL};
    assert_int_equal(ru_plan_coll(&in, &f.out, &s, &err), RU_E_UNSUPPORTED);
    assert_string_equal(err.text, "all-to-all cannot be done by ring: choose another algorithm");
    in = (ru_coll_in){.n_ranks = 3, .algo = RU_ALGO_HIERARCHY, .leaders = RU_ALGO_HIERARCHY};
    assert_int_equal(ru_plan_coll(&in, &f.out, &s, &err), RU_E_UNSUPPORTED);
    in = (ru_coll_in){.n_ranks = 3};
    assert_int_equal(ru_plan_coll_rank(&in, 3, &f.out, &s, &err), RU_E_ARG);
    s = plan_of(&f, &in);
    assert_int_equal(ru_plan_coll_check_part(&s, 3, 3, &f.scratch, &err), RU_E_ARG);
    close(&f);
}

static const ru_coll_algo large_algos[] = {RU_ALGO_HALVING, RU_ALGO_DOUBLING, RU_ALGO_TREE,
                                           RU_ALGO_DOUBLE_TREE};

/* The algorithms that may be used beyond 64 members, at every size, every block. */
static void test_every_size_is_proved(void **state)
{
    (void)state;
    enum { SIZES = 256 };
    fixture f;
    open(&f);
    for (uint32_t n = 2; n <= SIZES; n++) {
        for (uint32_t a = 0; a < RU_ARRAY_LEN(large_algos); a++) {
            ru_arena_mark mark = ru_arena_mark_get(&f.out);
            ru_coll_in in = {.algo = large_algos[a], .n_ranks = n};
            ru_coll_schedule s = plan_of(&f, &in);
            assert_same_list(&f, &in, &s);
            ru_arena_rewind(&f.out, mark);
        }
    }
    close(&f);
}

/* Some parts of the proof, as the members of a large view share it; all of them when there are few.
 */
static void try_parts(fixture *f, const ru_coll_in *in, uint32_t tries, ru_rng *rng)
{
    ru_arena_mark mark = ru_arena_mark_get(&f->out);
    ru_coll_schedule s;
    ru_err err;
    assert_ok(ru_plan_coll(in, &f->out, &s, &err), err);
    uint32_t parts = in->n_ranks < s.n_blocks ? in->n_ranks : s.n_blocks;
    for (uint32_t k = 0; k < tries && k < parts; k++) {
        uint32_t part = parts <= tries ? k : ru_rng_below(rng, parts);
        if (ru_plan_coll_check_part(&s, part, parts, &f->scratch, &err) != RU_OK) {
            fail_msg("%s by %s, %u ranks, root %u, leaders by %s: %s", ru_coll_op_name(in->op),
                     ru_coll_algo_name(in->algo), in->n_ranks, in->root,
                     ru_coll_algo_name(in->leaders), err.text);
        }
    }
    uint32_t r = ru_rng_below(rng, in->n_ranks);
    ru_coll_schedule one;
    assert_ok(ru_plan_coll_rank(in, r, &f->out, &one, &err), err);
    assert_int_equal(one.begin[r + 1], s.begin[r + 1] - s.begin[r]);
    assert_memory_equal(one.steps, s.steps + s.begin[r], one.begin[r + 1] * sizeof *s.steps);
    ru_arena_rewind(&f->out, mark);
}

/* Up to the largest group: random sizes, and those beside powers of two. */
static void test_large_sizes_are_proved(void **state)
{
    (void)state;
    static const uint32_t edges[] = {257, 511, 513, 1023, 1025, 2047, 2049, 4095, 4096};
    enum { DRAWN = 9 };
    fixture f;
    open(&f);
    ru_rng rng = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(edges) + DRAWN; k++) {
        uint32_t n = k < RU_ARRAY_LEN(edges) ? edges[k] : 258 + ru_rng_below(&rng, 1800);
        for (uint32_t a = 0; a < RU_ARRAY_LEN(large_algos); a++) {
            ru_coll_in in = {.algo = large_algos[a], .n_ranks = n};
            try_parts(&f, &in, 3, &rng);
        }
    }
    close(&f);
}

/* Members spread over hosts at random: few large hosts, many small ones, all on one. */
static void test_large_hierarchies_are_proved(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    ru_rng rng = ru_rng_from(ru_test_seed(), 4);
    uint16_t host[RU_COLL_RANKS_MAX];
    for (uint32_t turn = 0; turn < 40; turn++) {
        uint32_t n = turn == 0 ? RU_COLL_RANKS_MAX : 65 + ru_rng_below(&rng, 1000);
        uint32_t hosts = 1 + ru_rng_below(&rng, turn % 4 == 0 ? n : 40);
        for (uint32_t r = 0; r < n; r++) {
            host[r] = (uint16_t)(turn % 3 == 0 ? r * hosts / n : ru_rng_below(&rng, hosts));
        }
        for (uint32_t leaders = 0; leaders < RU_COLL_ALGOS; leaders++) {
            ru_coll_in in = {.op = turn % 5 == 1   ? RU_COLL_REDUCE
                                   : turn % 5 == 2 ? RU_COLL_BROADCAST
                                                   : RU_COLL_ALL_REDUCE,
                             .algo = RU_ALGO_HIERARCHY,
                             .leaders = (ru_coll_algo)leaders,
                             .n_ranks = n,
                             .host = host};
            in.root = has_root(in.op, in.algo) ? ru_rng_below(&rng, n) : 0;
            bool grows = leaders == RU_ALGO_RING || leaders == RU_ALGO_DIRECT;
            if (leaders != RU_ALGO_HIERARCHY && ru_plan_coll_does(in.leaders, in.op) &&
                !(grows && hosts > 64)) {
                try_parts(&f, &in, 2, &rng);
            }
        }
    }
    close(&f);
}

/* One step of a large schedule becomes wrong: whoever proves its block refuses it. */
static void test_large_corruptions_are_refused(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    ru_rng rng = ru_rng_from(ru_test_seed(), 5);
    for (uint32_t turn = 0; turn < 400; turn++) {
        ru_arena_mark mark = ru_arena_mark_get(&f.out);
        ru_coll_in in = {.algo = large_algos[turn % RU_ARRAY_LEN(large_algos)],
                         .n_ranks = 65 + ru_rng_below(&rng, 300)};
        ru_coll_schedule s;
        ru_err err;
        assert_ok(ru_plan_coll(&in, &f.out, &s, &err), err);
        uint32_t n = s.begin[s.n_ranks], i = ru_rng_below(&rng, n);
        ru_coll_step *steps = ru_arena_copy(&f.out, s.steps, (int64_t)(n * sizeof *steps), 8);
        ru_coll_step *x = &steps[i];
        uint32_t part = x->block;
        s.steps = steps;
        switch (turn / 4 % 5) {
        case 0:
            x->tag = (uint16_t)(x->tag + 1000);
            break;
        case 1:
            x->peer = (uint16_t)((x->peer + 1) % s.n_ranks);
            break;
        case 2:
            x->kind = x->kind == RU_COLL_RECV ? RU_COLL_REDUCE_RECV : RU_COLL_RECV;
            break;
        case 3:
            x->n_blocks++;
            break;
        default:
            x->block = (x->block + 1) % (s.n_blocks + 1);
            break;
        }
        if (ru_plan_coll_check_part(&s, part, s.n_blocks, &f.scratch, &err) != RU_E_INFEASIBLE) {
            fail_msg("%s, %u ranks, step %u changed by rule %u", ru_coll_algo_name(in.algo),
                     in.n_ranks, i, turn / 4 % 5);
        }
        ru_arena_rewind(&f.out, mark);
    }
    close(&f);
}

/* Stars with idle ranks: their sums hold the others, and where one of those is left out the judge
 * sees it. */
static void test_idle_ranks_are_left_out(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    ru_rng rng = ru_rng_from(ru_test_seed(), 6);
    for (uint32_t turn = 0; turn < 400; turn++) {
        ru_arena_mark mark = ru_arena_mark_get(&f.out);
        uint32_t n = 2 + turn % 8, root = ru_rng_below(&rng, n);
        bool idle[16] = {0};
        int64_t sum = 0;
        for (uint32_t r = 0; r < n; r++) {
            idle[r] = r != root && ru_rng_below(&rng, 2) == 0;
            sum += idle[r] ? 0 : 1000 * (int64_t)(r + 1);
        }
        const ru_coll_in in = {.algo = RU_ALGO_HIERARCHY, .n_ranks = n, .root = root, .idle = idle};
        ru_coll_schedule s = plan_of(&f, &in);
        assert_same_list(&f, &in, &s);
        machine m;
        machine_init(&m, &s, &f.out);
        for (uint32_t i = 0; i < n * s.n_blocks; i++) {
            m.mine[i] = idle[i / s.n_blocks] ? 0 : 1000 * (int64_t)(i / s.n_blocks + 1);
        }
        assert_true(machine_run(&m, &rng, &f.out));
        for (uint32_t i = 0; i < n * s.n_blocks; i++) {
            assert_true(m.mine[i] == sum);
        }
        for (uint32_t r = 0; r < n; r++) {
            bool was = idle[r];
            idle[r] = false;
            assert_int_equal(ru_plan_coll_check(&s, &f.scratch, NULL),
                             was ? RU_E_INFEASIBLE : RU_OK);
            idle[r] = was;
        }
        ru_arena_rewind(&f.out, mark);
    }
    close(&f);
}

/* A full arena is RU_E_LIMIT at whatever allocation, in the planner and in the judge. */
static void test_full_arena_is_a_limit(void **state)
{
    (void)state;
    static uint8_t small[1 << 16];
    static const uint16_t host[] = {0, 1, 0, 1, 2};
    ru_coll_in in = {.n_ranks = 5};
    ru_coll_schedule s = {0};
    bool done = false;
    for (int64_t size = 0; !done; size += 40) {
        ru_arena a;
        ru_arena_init_fixed(&a, small, size);
        ru_status st = ru_plan_coll(&in, &a, &s, NULL);
        assert_true(st == RU_OK || st == RU_E_LIMIT);
        done = st == RU_OK && ru_plan_coll_check(&s, &a, NULL) == RU_OK;
    }
    in.algo = RU_ALGO_HIERARCHY;
    in.host = host;
    ru_arena a;
    ru_arena_init_fixed(&a, small, sizeof small);
    assert_int_equal(ru_plan_coll(&in, &a, &s, NULL), RU_E_LIMIT);
}

static void test_names_and_print(void **state)
{
    (void)state;
    fixture f;
    open(&f);
    for (uint32_t i = 0; i < RU_COLL_OPS; i++) {
        assert_int_equal(ru_coll_op_find(ru_coll_op_name((ru_coll_op)i)), i);
    }
    for (uint32_t i = 0; i < RU_COLL_ALGOS; i++) {
        assert_int_equal(ru_coll_algo_find(ru_coll_algo_name((ru_coll_algo)i)), i);
    }
    assert_int_equal(ru_coll_algo_find("rings"), RU_COLL_ALGOS);
    ru_coll_in in = {.algo = RU_ALGO_DIRECT, .n_ranks = 3};
    ru_coll_schedule s = plan_of(&f, &in);
    assert_string_equal(
        print(&s, &f.out),
        "all-reduce by direct, 3 ranks, 3 blocks\n"
        "rank 0: send 1 to 1 (0), send 2 to 2 (0), add 0 from 1 (0), add 0 from 2 (0), "
        "send 0 to 1 (1), send 0 to 2 (1), take 2 from 2 (1), take 1 from 1 (1)\n"
        "rank 1: send 2 to 2 (0), send 0 to 0 (0), add 1 from 0 (0) before, add 1 from 2 (0), "
        "send 1 to 2 (1), send 1 to 0 (1), take 0 from 0 (1), take 2 from 2 (1)\n"
        "rank 2: send 0 to 0 (0), send 1 to 1 (0), keep 2 from 0 (0), keep 2 from 1 (0), fold 2, "
        "send 2 to 0 (1), send 2 to 1 (1), take 1 from 1 (1), take 0 from 0 (1)\n");
    in = (ru_coll_in){.algo = RU_ALGO_HIERARCHY, .n_ranks = 3, .root = 1}; /* a star */
    s = plan_of(&f, &in);
    assert_string_equal(print(&s, &f.out),
                        "all-reduce by hierarchy, 3 ranks, 1 blocks\n"
                        "rank 0: send 0 to 1 (0), take 0 from 1 (1)\n"
                        "rank 1: add 0 from 0 (0), add 0 from 2 (0), send 0 to 0 (1), "
                        "send 0 to 2 (1)\n"
                        "rank 2: send 0 to 1 (0), take 0 from 1 (1)\n");
    close(&f);
}

RU_TESTS(plan_coll, cmocka_unit_test(test_all_up_to_17_ranks), cmocka_unit_test(test_more_ranks),
         cmocka_unit_test(test_a_thousand_ranks), cmocka_unit_test(test_every_size_is_proved),
         cmocka_unit_test(test_large_sizes_are_proved),
         cmocka_unit_test(test_large_hierarchies_are_proved),
         cmocka_unit_test(test_large_corruptions_are_refused),
         cmocka_unit_test(test_corruptions_are_refused),
         cmocka_unit_test(test_idle_ranks_are_left_out),
         cmocka_unit_test(test_two_wrong_steps_are_refused), cmocka_unit_test(test_bad_questions),
         cmocka_unit_test(test_full_arena_is_a_limit), cmocka_unit_test(test_names_and_print))
