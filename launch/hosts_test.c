/* Sources of hosts and ranks. Slurm itself says what its lists mean: scripts/slurm-hosts asks it
 * and writes test/golden/slurm_hosts.txt. */
#include "launch/hosts.h"

#include <string.h>

#include "base/rng.h"
#include "env/file/file.h"
#include "test/test.h"
#include "test/where.h"

static void joined(const ru_hosts *h, ru_text *t)
{
    for (uint32_t i = 0; i < h->n; i++) {
        ru_text_putf(t, "%s%s", i > 0 ? " " : "", h->at[i].name);
        if (h->at[i].workers != 1) {
            ru_text_putf(t, ":%u", h->at[i].workers);
        }
    }
}

static void test_slurm_lists(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"n1", "n1"},
        {"n[1-3,07-09]-x,m5", "n1-x n2-x n3-x n07-x n08-x n09-x m5"},
        {"gnode[10,20,25-27],login1", "gnode10 gnode20 gnode25 gnode26 gnode27 login1"},
        {"r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"},
        {"a[098-101]", "a098 a099 a100 a101"},
        {"a[8-11].b.c", "a8.b.c a9.b.c a10.b.c a11.b.c"},
        {"[1-2]", "1 2"},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_hosts h;
        ru_err err;
        assert_ok(ru_hosts_from_slurm(ru_str_c(rows[i][0]), &a, &h, &err), err);
        ru_text t = ru_text_arena(&a);
        joined(&h, &t);
        assert_string_equal(t.p, rows[i][1]);
        ru_arena_fini(&a);
    }
    static const char *const bad[] = {"",
                                      ",",
                                      "a,",
                                      "a[",
                                      "a]",
                                      "a[]",
                                      "a[1-]",
                                      "a[2-1]",
                                      "a[1,]",
                                      "a[1-2",
                                      "a[x]",
                                      "a b",
                                      "a[1-99999]",
                                      "a,,b",
                                      "a;rm",
                                      "a[[1-2]]",
                                      "n1,n1",
                                      "-a",
                                      "a[1-2]b[1-64]c[1-64]d[1-64]",
                                      "a[1-9999999999]",
                                      "a[4294967297-4294967298]",
                                      "a[1][1][1][1][1]"};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(bad); i++) {
        ru_arena a;
        ru_arena_init(&a, 1 << 22);
        ru_hosts h;
        ru_err err;
        assert_int_not_equal(ru_hosts_from_slurm(ru_str_c(bad[i]), &a, &h, &err), RU_OK);
        ru_arena_fini(&a);
    }
}

/* Where we differ, on purpose: what Slurm never writes is refused (a host twice, half a list, more
 * than nine digits), letters behind the last bracket are taken. */
static bool differs(const char *list, bool slurm_takes_it)
{
    static const char *const refused[] = {
        "n1,n1", "n[1,1]", "n[",      "n]",    "n[1-",   ",n",       "n,",
        "a,,b",  "n 1",    "n[ 1-2]", "n[1-]", "n{1,2}", "n[1-2] m", "n[12345678901-12345678902]"};
    static const char *const taken[] = {"n[1-3,07-09]-x,m5", "a[8-11].b.c", "a-b[1-2]-c"};
    const char *const *at = slurm_takes_it ? refused : taken;
    uint32_t n = slurm_takes_it ? RU_ARRAY_LEN(refused) : RU_ARRAY_LEN(taken), i = 0;
    while (i < n && strcmp(at[i], list) != 0) {
        i++;
    }
    return i < n;
}

static void test_as_slurm_says(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    char *text;
    int64_t size;
    ru_err err;
    assert_ok(
        ru_file_read(RU_SOURCE_ROOT "/test/golden/slurm_hosts.txt", 0, &a, &text, &size, &err),
        err);
    ru_str rest = ru_str_n(text, size), line;
    uint32_t n = 0;
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t tab = ru_str_find(line, "\t");
        if (line.n == 0 || line.p[0] == '#') {
            continue;
        }
        assert_true(tab > 0);
        const char *list = ru_arena_strn(&a, line.p, tab);
        const char *want = ru_arena_strn(&a, line.p + tab + 1, line.n - tab - 1);
        bool takes = strcmp(want, "!") != 0, other = differs(list, takes);
        ru_hosts h;
        ru_status st = ru_hosts_from_slurm(ru_str_c(list), &a, &h, &err);
        if ((st == RU_OK) != (takes != other)) {
            fail_msg("'%s': Slurm says '%s', this %s it", list, want,
                     st == RU_OK ? "takes" : "refuses");
        }
        if (st == RU_OK && takes) {
            ru_text t = ru_text_arena(&a);
            joined(&h, &t);
            assert_string_equal(t.p, want);
        }
        n++;
    }
    assert_true(n >= 50);
    ru_arena_fini(&a);
}

static void test_flag_and_counts(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_hosts h;
    ru_err err;
    assert_ok(ru_hosts_from_flag(ru_str_c("a:2,b:1,c,a:3"), &a, &h, &err), err);
    ru_text t = ru_text_arena(&a);
    joined(&h, &t);
    assert_string_equal(t.p, "a:5 b c");
    assert_int_equal(h.workers, 7);
    assert_ok(ru_hosts_from_flag(ru_str_c("a:2,b:3:transient,c:1:reliable"), &a, &h, &err), err);
    assert_int_equal(h.workers, 6);
    assert_true(h.at[1].transient && !h.at[0].transient && !h.at[2].transient);
    static const char *const bad[] = {"",
                                      "a:",
                                      "a:0",
                                      "a:x",
                                      ":2",
                                      "a:2,",
                                      "a:2,,b",
                                      "a:99999",
                                      "a:-1",
                                      "a:2:spot",
                                      "a:2:",
                                      "a::transient",
                                      "a:1,a:2:transient"};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(bad); i++) {
        ru_hosts x;
        assert_int_not_equal(ru_hosts_from_flag(ru_str_c(bad[i]), &a, &x, &err), RU_OK);
    }
    assert_ok(ru_hosts_from_slurm(ru_str_c("n[1-4]"), &a, &h, &err), err);
    assert_ok(ru_hosts_counts(ru_str_c("2(x3),1"), &a, &h, &err), err);
    assert_int_equal(h.workers, 7);
    assert_int_equal(h.at[3].workers, 1);
    static const char *const bad_counts[] = {"2",      "2(x4),1", "2(x3)", "(x4)",     "2(x),1",
                                             "2(x3,1", "a(x4)",   "",      "2(x99999)"};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(bad_counts); i++) {
        assert_int_not_equal(ru_hosts_counts(ru_str_c(bad_counts[i]), &a, &h, &err), RU_OK);
    }
    ru_arena_fini(&a);
}

/* "NAME=value;NAME=value" as an environment. */
static const char *lookup(void *self, const char *name)
{
    ru_str rest = ru_str_c(self), item;
    while (ru_str_next(&rest, ';', &item)) {
        int64_t eq = ru_str_find(item, "=");
        if (eq > 0 && ru_str_eq_c(ru_str_n(item.p, eq), name)) {
            /* Answers live on: the plan points into them. One slot per call in turn. */
            static _Thread_local char slots[64][256];
            static _Thread_local uint32_t at;
            char *slot = slots[at++ % 64];
            ru_text t = ru_text_into(slot, 256);
            ru_text_put_n(&t, item.p + eq + 1, item.n - eq - 1);
            return slot;
        }
    }
    return NULL;
}

#define STEP                                                                                 \
    "SLURM_JOB_ID=77;SLURM_STEP_ID=0;SLURM_NTASKS=4;SLURM_STEP_NUM_TASKS=4;SLURM_LOCALID=1;" \
    "SLURM_STEP_NODELIST=n[3-4];SLURM_JOB_NODELIST=n[1-4];SLURM_STEP_TASKS_PER_NODE=2(x2);"

typedef struct row {
    ru_hosts_flags flags;
    const char *env;
    const char *want; /* the line, or a part of the error after '!' */
} row;

static const char *const here[] = {"n1", "10.0.0.1"};

static const row rows[] = {
    {{0}, "", "1 worker here, up to 1 (no launcher or option names others)"},
    {{.workers = "2:8"}, "", "2 workers here, up to 8 (-w)"},
    {{.hosts = "n1:2,b:2"}, "", "4 workers on 2 hosts, 2 of them here (--hosts)"},
    {{.hosts = "a:2", .workers = "3"}, "", "!-w 3 and --hosts (2)"},
    {{.hosts = "a:2", .nnodes = "2"}, "", "!--hosts and --nnodes"},
    {{.hosts = "a:2"}, "RANK=1;WORLD_SIZE=2", "!--hosts and RANK"},
    {{.hosts = "a:2"}, STEP "SLURM_PROCID=1", "!--hosts and srun"},
    {{.nproc_per_node = "4"}, "", "4 workers here, 4 in all (torchrun's flags); starts the job"},
    {{.nnodes = "1:3", .nproc_per_node = "2", .rdzv_endpoint = "n1"},
     "",
     "2 workers here, 2 to 6 in all (torchrun's flags); starts or joins the job at n1:29400"},
    {{.nnodes = "2", .nproc_per_node = "cpu", .cpu_workers = 3, .rdzv_endpoint = "far:1234"},
     "",
     "3 workers here, 6 in all (torchrun's flags); joins the job at far:1234"},
    {{.nnodes = "2", .master_addr = "far", .node_rank = "0"},
     "",
     "1 worker here, 2 in all (torchrun's flags); starts the job at far:29500"},
    {{.nnodes = "2", .master_addr = "far", .node_rank = "1"},
     "",
     "1 worker here, 2 in all (torchrun's flags); joins the job at far:29500"},
    {{.nnodes = "2", .master_addr = "far", .node_rank = "2"}, "", "!--node-rank is '2'"},
    {{.nnodes = "1024", .nproc_per_node = "1024", .rdzv_endpoint = "a"}, "", "!at most 1024"},
    {{.nnodes = "2"}, "", "!needs --rdzv-endpoint"},
    {{.nnodes = "2", .rdzv_endpoint = "a", .master_addr = "b"},
     "",
     "!--rdzv-endpoint a and --master-addr b"},
    {{.nnodes = "2", .standalone = true}, "", "!--standalone means one node"},
    {{.nproc_per_node = "gpu"}, "", "!has no GPU"},
    {{.nproc_per_node = "x"}, "", "!--nproc-per-node 'x'"},
    {{.master_port = "x"}, "", "!--master-port is 'x'"},
    {{.nnodes = "2", .rdzv_endpoint = "a:b"}, "", "!--rdzv-endpoint (the port) is 'b'"},
    {{.nnodes = "2", .rdzv_endpoint = ""}, "", "!--rdzv-endpoint is ''"},
    {{.nnodes = "2"}, "PET_RDZV_ENDPOINT=a:b", "!--rdzv-endpoint (the port) is 'b'"},
    {{0}, "PET_NPROC_PER_NODE=2", "2 workers here, 2 in all (torchrun's flags); starts the job"},
    {{.nnodes = "2"}, "RANK=0;WORLD_SIZE=2", "!--nnodes and RANK"},
    {{0},
     "RANK=2;WORLD_SIZE=4;MASTER_ADDR=m;MASTER_PORT=5",
     "worker 3 of 4 (RANK and WORLD_SIZE); joins the job at m:5"},
    {{0},
     "RANK=2;WORLD_SIZE=4;MASTER_ADDR=m;MASTER_PORT=5;TORCHELASTIC_RUN_ID=x;"
     "TORCHELASTIC_USE_AGENT_STORE=True",
     "worker 3 of 4 (RANK and WORLD_SIZE, set by torchrun); joins the job at m:6"},
    {{0}, "RANK=0;WORLD_SIZE=1", "worker 1 of 1 (RANK and WORLD_SIZE); starts the job"},
    {{0}, "RANK=1;WORLD_SIZE=2", "!MASTER_ADDR is not set"},
    {{0}, "RANK=1", "!WORLD_SIZE is not set, but RANK is"},
    {{0}, "WORLD_SIZE=2", "!RANK is not set, but WORLD_SIZE is"},
    {{0}, "RANK=4;WORLD_SIZE=4;MASTER_ADDR=m", "!RANK is '4'"},
    {{0},
     "RANK=;WORLD_SIZE=;SLURM_JOB_ID=",
     "1 worker here, up to 1 (no launcher or option names others)"},
    {{0}, "RANK=0;WORLD_SIZE=2;MASTER_ADDR=:5", "!MASTER_ADDR is ':5'"},
    {{0}, "RANK=x;WORLD_SIZE=4", "!RANK is 'x'"},
    {{0}, "RANK=0;WORLD_SIZE=2;MASTER_ADDR=a b", "!MASTER_ADDR is 'a b'"},
    {{.workers = "3"}, "RANK=0;WORLD_SIZE=2;MASTER_ADDR=m", "!-w 3 and RANK and WORLD_SIZE (2)"},
    {{0},
     STEP "SLURM_PROCID=2",
     "worker 3 of 4 (Slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST); joins the "
     "job at "
     "n3:20539"},
    {{0},
     STEP "SLURM_PROCID=0;RANK=0;WORLD_SIZE=4;MASTER_ADDR=m",
     "worker 1 of 4 (RANK and WORLD_SIZE); starts the job"},
    {{0},
     STEP "SLURM_PROCID=0;RANK=0;WORLD_SIZE=8;MASTER_ADDR=m",
     "!WORLD_SIZE is 8 but SLURM_STEP_NUM_TASKS is 4"},
    {{0}, STEP "SLURM_PROCID=4", "!SLURM_PROCID is '4'"},
    {{0},
     "SLURM_STEP_ID=3;" STEP "SLURM_PROCID=2",
     "worker 3 of 4 (Slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST); joins the "
     "job at "
     "n3:20542"},
    {{0},
     "SLURM_JOB_ID=7;SLURM_STEP_ID=0;SLURM_PROCID=1;SLURM_STEP_NUM_TASKS=2;"
     "SLURM_STEP_NODELIST=m1",
     "worker 2 of 2 (Slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST); joins the "
     "job at 127.0.0.1:20049"},
    {{.workers = "2:8"},
     STEP "SLURM_PROCID=0",
     "worker 1 of 4 (Slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST); starts the "
     "job"},
    {{.nnodes = "2", .rdzv_endpoint = "n3:9"},
     STEP "SLURM_PROCID=0",
     "1 worker here, 2 in all (torchrun's flags); joins the job at n3:9"},
    {{0},
     "SLURM_JOB_ID=7;SLURM_PROCID=0;SLURM_JOB_NODELIST=n[1-2];SLURM_TASKS_PER_NODE=3(x2)",
     "6 workers on 2 hosts, 3 of them here (Slurm: SLURM_JOB_NODELIST); starts the job at "
     "n1:20049"},
    {{0},
     "SLURM_JOB_ID=7;SLURM_JOB_NODELIST=m[1-2];SLURM_TASKS_PER_NODE=3,2;SLURMD_NODENAME=m2",
     "5 workers on 2 hosts, 2 of them here (Slurm: SLURM_JOB_NODELIST); starts the job at "
     "m1:20049"},
    {{0},
     "SLURM_JOB_ID=7;SLURM_JOB_NODELIST=m[1-2]",
     "2 workers on 2 hosts, 0 of them here (Slurm: SLURM_JOB_NODELIST); starts the job at "
     "m1:20049"},
    {{.hosts = "n1.cluster:2,n1x:1,10.0.0:1,10.0.0.1:3"},
     "",
     "7 workers on 4 hosts, 5 of them here (--hosts)"},
    {{0},
     "SLURM_JOB_ID=7;SLURM_JOB_NODELIST=n[1-",
     "!SLURM_JOB_NODELIST: the list of hosts is malformed"},
    {{0},
     "OMPI_COMM_WORLD_RANK=1;OMPI_COMM_WORLD_SIZE=2;OMPI_COMM_WORLD_LOCAL_SIZE=2",
     "worker 2 of 2 (Open MPI: OMPI_COMM_WORLD_RANK and _SIZE); joins the job at 127.0.0.1:29500"},
    {{0}, "PMI_RANK=1;PMI_SIZE=2", "!MASTER_ADDR is not set"},
    {{0},
     "PMI_RANK=1;PMI_SIZE=2;MASTER_ADDR=::5",
     "worker 2 of 2 (PMI: PMI_RANK and PMI_SIZE); joins the job at [::5]:29500"},
};

static void test_sources(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_hosts_flags f = rows[i].flags;
        f.names_here = here;
        f.n_names_here = 2;
        char text[1024];
        strncpy(text, rows[i].env, sizeof text - 1);
        text[sizeof text - 1] = '\0';
        ru_hosts_plan p;
        ru_err err = {0};
        ru_status st = ru_hosts_resolve(&f, lookup, text, &a, &p, &err);
        if (rows[i].want[0] == '!') {
            if (st == RU_OK || strstr(err.text, rows[i].want + 1) == NULL) {
                fail_msg("%s: expected '%s', got '%s'", rows[i].env, rows[i].want,
                         st == RU_OK ? p.line : err.text);
            }
            /* A wrong flag is wrong usage, a wrong variable is not. */
            if (rows[i].env[0] == '\0') {
                assert_int_equal(st, RU_E_USAGE);
            } else if (strncmp(rows[i].env, "PET_", 4) == 0) {
                assert_int_equal(st, RU_E_CONFIG);
            }
        } else {
            assert_ok(st, err);
            assert_string_equal(p.line, rows[i].want);
        }
        ru_arena_fini(&a);
    }
}

/* All processes of one start are known by the same text, those of another by another one; what may
 * be left over in a shell is no start. */
static void test_starts(void **state)
{
    (void)state;
#define TORCHRUN "WORLD_SIZE=2;MASTER_PORT=5;"
#define MPI      "OMPI_COMM_WORLD_SIZE=2;MASTER_ADDR=m;"
    static const struct {
        const char *one, *other; /* NULL: none */
        bool alike;
    } pairs[] = {
        {TORCHRUN "RANK=0;MASTER_ADDR=localhost;TORCHELASTIC_RUN_ID=x",
         TORCHRUN "RANK=1;MASTER_ADDR=m;TORCHELASTIC_RUN_ID=x", true},
        {TORCHRUN "RANK=0;MASTER_ADDR=m;TORCHELASTIC_RUN_ID=x",
         TORCHRUN "RANK=0;MASTER_ADDR=m;TORCHELASTIC_RUN_ID=y", false},
        {TORCHRUN "RANK=0;MASTER_ADDR=m", NULL, false},
        {STEP "SLURM_PROCID=0", STEP "SLURM_PROCID=3", true},
        {STEP "SLURM_PROCID=0", "SLURM_STEP_ID=1;" STEP "SLURM_PROCID=0", false},
        {STEP "SLURM_PROCID=0", "SLURM_JOB_ID=78;" STEP "SLURM_PROCID=0", false},
        {MPI "OMPI_COMM_WORLD_RANK=0;PMIX_NAMESPACE=1@2",
         MPI "OMPI_COMM_WORLD_RANK=1;PMIX_NAMESPACE=1@2", true},
        {MPI "OMPI_COMM_WORLD_RANK=0;PMIX_NAMESPACE=1@2",
         MPI "OMPI_COMM_WORLD_RANK=0;PMIX_NAMESPACE=1@3", false},
        {"PMI_RANK=0;PMI_SIZE=2;MASTER_ADDR=m", "PMI_RANK=1;PMI_SIZE=2;MASTER_ADDR=m", true},
        {"PMI_RANK=0;PMI_SIZE=2;MASTER_ADDR=m", "PMI_RANK=0;PMI_SIZE=3;MASTER_ADDR=m", false},
        {"PET_NNODES=2;PET_RDZV_ENDPOINT=m:5;PET_RDZV_ID=7",
         "PET_NNODES=2;PET_RDZV_ENDPOINT=m.x:5;PET_RDZV_ID=7", true},
        {"PET_NNODES=2;PET_RDZV_ENDPOINT=m:5;PET_RDZV_ID=7",
         "PET_NNODES=2;PET_RDZV_ENDPOINT=m:6;PET_RDZV_ID=7", false},
        {"", NULL, false},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(pairs); i++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        const char *launch[2] = {NULL, NULL};
        for (uint32_t k = 0; k < 2; k++) {
            const char *from = k == 0 ? pairs[i].one : pairs[i].other;
            ru_hosts_plan p = {0};
            ru_err err = {0};
            ru_hosts_flags f = {0};
            char *text = ru_arena_str(&a, from != NULL ? from : "");
            assert_ok(ru_hosts_resolve(&f, lookup, text, &a, &p, &err), err);
            launch[k] = p.launch;
        }
        if (pairs[i].other == NULL) {
            assert_null(launch[0]);
        } else {
            assert_non_null(launch[0]);
            assert_int_equal(strcmp(launch[0], launch[1]) == 0, pairs[i].alike);
        }
        ru_arena_fini(&a);
    }
}

/* Any bytes as lists: an answer within the bounds, or an error. */
static void test_any_text(void **state)
{
    (void)state;
    static const char letters[] = "ab01-[],:()x. 9";
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    for (uint32_t k = 0; k < 20000; k++) {
        char text[24];
        uint32_t n = ru_rng_below(&r, sizeof text);
        for (uint32_t i = 0; i < n; i++) {
            text[i] = letters[ru_rng_below(&r, sizeof letters - 1)];
        }
        ru_arena a;
        ru_arena_init(&a, 1 << 22);
        ru_hosts h;
        ru_err err;
        if (ru_hosts_from_slurm(ru_str_n(text, n), &a, &h, &err) == RU_OK) {
            assert_true(h.n > 0 && h.n <= RU_HOSTS_MAX && h.workers == h.n);
            if (ru_hosts_counts(ru_str_n(text, n), &a, &h, &err) == RU_OK) {
                assert_true(h.workers >= h.n);
            }
        }
        if (ru_hosts_from_flag(ru_str_n(text, n), &a, &h, &err) == RU_OK) {
            assert_true(h.n > 0 && h.workers >= h.n && h.workers <= RU_HOSTS_WORKERS_MAX);
        }
        ru_arena_fini(&a);
    }
}

RU_TESTS(launch_hosts, cmocka_unit_test(test_slurm_lists), cmocka_unit_test(test_as_slurm_says),
         cmocka_unit_test(test_flag_and_counts), cmocka_unit_test(test_sources),
         cmocka_unit_test(test_starts), cmocka_unit_test(test_any_text))
