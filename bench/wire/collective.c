/* rubato bench collective: all-reduce of real processes against Open MPI and gloo, in turns. */
#include "bench/wire/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"

enum { RANKS_MAX = 8, ROUNDS = 7, ROUNDS_QUICK = 3 };

/* -- the three sides ------------------------------------------------------------------------------
 */

const char *rui_team_number(ru_arena *a, int64_t x)
{
    return ru_arena_printf(a, "%lld", (long long)x);
}

static ru_status start_ours(rui_team *t, ru_bench *b, uint32_t n, int64_t bytes_max, ru_err *err)
{
    *t = (rui_team){.name = "rubato"};
    const char *handles = "join", *handle;
    for (uint32_t r = 0; r < n; r++) {
        const char *argv[] = {ru_bench_rubato(b->arena),
                              "bench",
                              "--worker",
                              "collective",
                              "shm",
                              rui_team_number(b->arena, r),
                              rui_team_number(b->arena, n),
                              rui_team_number(b->arena, bytes_max),
                              NULL};
        RU_TRY(rui_team_start_one(t, argv, err));
        RU_TRY(rui_team_ready(t, r, b->arena, &handle, err));
        handles = ru_arena_printf(b->arena, "%s %s", handles, handle);
    }
    handles = ru_arena_printf(b->arena, "%s\n", handles);
    for (uint32_t r = 0; r < n; r++) {
        RU_TRY(ru_process_write(t->p[r], handles, (int64_t)strlen(handles), err));
    }
    return RU_OK;
}

/* Compile the Open MPI side. */
ru_status rui_bench_coll_mpi(ru_bench *b, const char **program, ru_err *err)
{
    const char *source = ru_arena_printf(b->arena, "%s/coll_mpi.c", ru_bench_scripts(b->arena));
    *program = ru_arena_printf(b->arena, "%s/coll_mpi", b->dir);
    const char *argv[] = {"mpicc", "-O2", "-o", *program, source, NULL};
    ru_process *p;
    ru_process_options opt = {.argv = argv};
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK : RU_FAIL(err, RU_E_PEER, "mpicc ended with %d", code);
}

static ru_status start_mpi(rui_team *t, ru_bench *b, uint32_t n, int64_t bytes_max, ru_err *err)
{
    const char *program;
    RU_TRY(rui_bench_coll_mpi(b, &program, err));
    const char *argv[] = {"mpirun",
                          "--bind-to",
                          "none",
                          "--oversubscribe",
                          "--mca",
                          "btl_base_warn_component_unused",
                          "0",
                          "-np",
                          rui_team_number(b->arena, n),
                          program,
                          b->dir,
                          rui_team_number(b->arena, bytes_max),
                          NULL};
    RU_TRY(rui_team_start_one(t, argv, err));
    return rui_team_ready(t, 0, b->arena, &t->detail, err);
}

static ru_status start_gloo(rui_team *t, ru_bench *b, uint32_t n, int64_t bytes_max, ru_err *err)
{
    const char *store =
        ru_arena_printf(b->arena, "%s/gloo.%lld.%u", b->dir, (long long)ru_self_pid(), n);
    char full[4096];
    if (realpath(b->dir, full) != NULL) {
        store = ru_arena_printf(b->arena, "%s/gloo.%lld.%u", full, (long long)ru_self_pid(), n);
    }
    for (uint32_t r = 0; r < n; r++) {
        const char *argv[] = {
            "python3",
            ru_arena_printf(b->arena, "%s/coll_gloo.py", ru_bench_scripts(b->arena)),
            rui_team_number(b->arena, r),
            rui_team_number(b->arena, n),
            store,
            rui_team_number(b->arena, bytes_max),
            NULL};
        RU_TRY(rui_team_start_one(t, argv, err));
    }
    for (uint32_t r = 0; r < n; r++) {
        RU_TRY(rui_team_ready(t, r, b->arena, &t->detail, err));
    }
    return RU_OK;
}

typedef ru_status (*start_fn)(rui_team *, ru_bench *, uint32_t, int64_t, ru_err *);

/* A peer that does not start is missing, not an error. */
static void start_peer(rui_team *t, const char *name, const char *install, start_fn start,
                       ru_bench *b, uint32_t n, int64_t bytes_max)
{
    ru_err err = {0};
    *t = (rui_team){.name = name, .detail = name};
    if (start(t, b, n, bytes_max, &err) != RU_OK) {
        rui_team_close(t);
        t->missing = ru_arena_printf(b->arena, "%s; %s", err.text, install);
    }
}

/* -- rounds ---------------------------------------------------------------------------------------
 */

/* Times that fill about `seconds`. */
static int64_t times_for(const rui_team *t, double seconds)
{
    double n = seconds / t->per_op_s;
    return n < 1 ? 1 : n > 100000 ? 100000 : (int64_t)n;
}

static ru_status measure(rui_team *teams, uint32_t n_teams, int64_t bytes, const ru_bench *b,
                         ru_err *err)
{
    uint32_t rounds = b->quick ? ROUNDS_QUICK : ROUNDS;
    double seconds = b->quick ? 0.05 : 0.15;
    for (uint32_t k = 0; k < n_teams; k++) {
        if (teams[k].missing == NULL) {
            RU_TRY(rui_team_run(&teams[k], bytes, 3, "", &teams[k].per_op_s, err));
            RU_TRY(rui_team_run(&teams[k], bytes, times_for(&teams[k], seconds / 3), "",
                                &teams[k].per_op_s, err));
        }
    }
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t k = 0; k < n_teams; k++) {
            rui_team *t = &teams[k];
            if (t->missing == NULL) {
                RU_TRY(rui_team_run(t, bytes, times_for(t, seconds), "", &t->took[r], err));
            }
        }
    }
    return RU_OK;
}

const char *rui_team_size(ru_arena *a, int64_t bytes)
{
    bool large = bytes >= 1 << 20;
    return ru_arena_printf(a, "%lld %s", (long long)(bytes >> (large ? 20 : 10)),
                           large ? "MiB" : "KiB");
}

static const int64_t sizes[] = {1 << 10, 8 << 10, 64 << 10, 256 << 10,
                                1 << 20, 4 << 20, 16 << 20, 64 << 20};

static const char *shm_name(const ru_bench *b, uint32_t n, int64_t bytes)
{
    return ru_arena_printf(b->arena, "shared memory %u ranks %s", n,
                           rui_team_size(b->arena, bytes));
}

/* One row a peer: bus bandwidth from 1 MiB on, microseconds below. */
static ru_status report(ru_bench *b, const rui_team *ours, const rui_team *theirs, uint32_t n,
                        int64_t bytes, double goal, ru_err *err)
{
    bool large = bytes >= 1 << 20;
    uint32_t rounds = b->quick ? ROUNDS_QUICK : ROUNDS;
    double mine[ROUNDS], other[ROUNDS];
    for (uint32_t r = 0; r < rounds; r++) {
        double moved = 2.0 * (n - 1) / n * (double)bytes * 1e-9;
        mine[r] = large ? moved / ours->took[r] : ours->took[r] * 1e6;
        other[r] = large ? moved / theirs->took[r] : theirs->took[r] * 1e6;
    }
    ru_bench_row row = {.name = shm_name(b, n, bytes),
                        .unit = large ? "GB/s" : "us",
                        .lower = !large,
                        .peer = theirs->detail,
                        .missing = theirs->missing,
                        .goal = goal};
    row.ours = ru_bench_stat_of(mine, rounds);
    if (theirs->missing == NULL) {
        row.theirs = ru_bench_stat_of(other, rounds);
    }
    return ru_bench_add(b, &row, err);
}

static ru_status shm_ranks(ru_bench *b, uint32_t n, ru_err *err)
{
    int64_t most = 0; /* of the rows that are wanted */
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sizes); k++) {
        most = ru_bench_wants(b, shm_name(b, n, sizes[k])) ? sizes[k] : most;
    }
    if (most == 0) {
        return RU_OK;
    }
    rui_team teams[3];
    ru_status st = start_ours(&teams[0], b, n, most, err);
    start_peer(&teams[1], "Open MPI", "apt-get install openmpi-bin libopenmpi-dev", start_mpi, b, n,
               most);
    start_peer(&teams[2], "gloo", "pip install torch", start_gloo, b, n, most);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sizes) && st == RU_OK; k++) {
        if (!ru_bench_wants(b, shm_name(b, n, sizes[k]))) {
            continue;
        }
        st = measure(teams, 3, sizes[k], b, err);
        for (uint32_t p = 1; p < 3 && st == RU_OK; p++) {
            st = report(b, &teams[0], &teams[p], n, sizes[k], sizes[k] >= 1 << 20 ? 1.2 : 1.0, err);
        }
    }
    for (uint32_t k = 0; k < 3; k++) {
        rui_team_close(&teams[k]);
    }
    return st;
}

ru_status ru_bench_collective(ru_bench *b, ru_err *err)
{
    RU_TRY(rui_bench_coll_add(b, err));
    for (uint32_t n = 2; n <= RANKS_MAX; n *= 2) {
        RU_TRY(shm_ranks(b, n, err));
        RU_TRY(rui_bench_coll_lab(b, n, err));
    }
    return RU_OK;
}
