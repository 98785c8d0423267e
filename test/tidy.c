/* The tidy suite. See tidy.h. */
#include "test/tidy.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/vec.h"
#include "test/test.h"
#include "test/where.h"

/* What each folder may include besides itself: arrows that need a reason have it beside them. */
static const struct {
    const char *folder, *may;
} arrows[] = {
    {"base", ""},
    {"world", "base"},
    {"env", "base"},
    {"trace", "base world env"},
    {"cost", "base world"},
    {"plan", "base world cost"},
    /* exec also asks plan/step/mem where buffers go: a pure function of the lowered steps, called
     * once when an executable opens, with no owner above to call it for inference alone. */
    {"exec", "base world env trace plan"},
    /* comm also asks cost what recurring transfers take. */
    {"comm", "base world env trace cost"},
    /* store also asks the policy `storage` where a file of a program begins, one opening at a time:
     * a program that links the library has no owner above it that could. */
    {"store", "base world env trace cost plan/disk solve"},
    /* data also reads npy files, whose reader stands in store beside npz, and asks web for files
     * behind addresses. */
    {"data", "base world env trace store web"},
    /* What a run leaves behind, for whoever looks at it: it needs the model and the job, not the
     * trainer. */
    {"run", "base world env trace plan exec data store web train/model train/job"},
    /* The shell of a live process: it tells the launcher by run/message who is in the job. */
    {"host", "base world env trace comm run"},
    /* What an app of a user's own may include. */
    {"apps", "train/app/app.h"},
    {"train", "base world env trace cost plan exec comm data store run host"},
    /* launch also asks exec/pool how many cores there are. */
    {"launch", "base world env trace exec train run"},
    {"web", "base env"},
    /* function also asks web: instances are called over HTTP. */
    {"function", "base world env trace web"},
    {"watch", "base env trace train run web"},
    /* burst also asks web: a service tells its latencies over HTTP. */
    {"burst", "base world env cost plan web"},
    /* cluster also asks web: people come over HTTP. */
    {"cluster", "base world env trace cost plan comm store web"},
    /* serve also asks web: clients come over HTTP. */
    {"serve", "base world env trace cost plan exec store web function"},
    {"fleet", "base world env trace cost plan exec comm data store run web function train"},
    {"sim", "base world env cost"},
    {"solve", "base world"},
    {"lab", "base world env trace cost plan exec comm data store train run sim"},
    {"tool",
     "base world env trace cost plan exec comm data store host train run launch web watch burst "
     "cluster function serve fleet sim solve lab"},
    {"bench", "*"},
    {"test", "*"},
};

bool rui_tidy_arrow(const char *folder, const char *other)
{
    if (strcmp(folder, other) == 0) {
        return true;
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(arrows); i++) {
        if (strcmp(arrows[i].folder, folder) != 0) {
            continue;
        }
        if (strcmp(arrows[i].may, "*") == 0) {
            return strcmp(other, "test") != 0 || strcmp(folder, "test") == 0;
        }
        ru_str rest = ru_str_c(arrows[i].may), word;
        while (ru_str_next(&rest, ' ', &word)) {
            if (ru_str_eq_c(word, other)) {
                return true;
            }
        }
    }
    return false;
}

void rui_tidy_breach(rui_tidy *t, const char *path, uint32_t line, const char *fmt, ...)
{
    t->n_found++;
    ru_text_putf(&t->found, "%s:%u: ", path, line);
    va_list ap;
    va_start(ap, fmt);
    ru_text_vputf(&t->found, fmt, ap);
    va_end(ap);
    ru_text_put(&t->found, "\n");
}

/* Blanks in place of comments and of what stands between quotes; line ends stay. */
static ru_str blanked(ru_arena *a, ru_str text)
{
    char *p = ru_arena_strn(a, text.p, text.n);
    RU_CHECK(p != NULL);
    enum { CODE, LINE, BLOCK, STRING, CHARACTER } in = CODE;
    for (int64_t i = 0; i < text.n; i++) {
        char c = text.p[i], next = i + 1 < text.n ? text.p[i + 1] : '\0';
        bool keep = c == '\n';
        if (in == CODE) {
            keep = true;
            if (c == '/' && (next == '*' || next == '/')) {
                in = next == '*' ? BLOCK : LINE;
                keep = false;
                p[++i] = ' ';
                p[i - 1] = ' ';
            } else if (c == '"' || c == '\'') {
                in = c == '"' ? STRING : CHARACTER;
            }
        } else if (in == LINE) {
            in = c == '\n' ? CODE : LINE;
        } else if (in == BLOCK && c == '*' && next == '/') {
            p[i] = p[i + 1] = ' ';
            i++;
            in = CODE;
            continue;
        } else if ((in == STRING || in == CHARACTER) && c == '\\') {
            p[i] = ' ';
            p[++i] = ' ';
            continue;
        } else if ((in == STRING && c == '"') || (in == CHARACTER && c == '\'')) {
            keep = true;
            in = CODE;
        }
        p[i] = keep ? p[i] : ' ';
    }
    return ru_str_n(p, text.n);
}

rui_source_file rui_tidy_file(rui_tidy *t, const char *path, const char *text)
{
    rui_source_file f = {.path = path, .text = ru_str_c(text)};
    const char *slash = strchr(path, '/');
    f.folder = slash != NULL ? ru_arena_strn(&t->arena, path, slash - path) : "";
    f.code = blanked(&t->arena, f.text);
    RU_CHECK(f.folder != NULL);
    return f;
}

RU_VEC(rui_file_list, rui_source_file)

const char *rui_tidy_read(rui_tidy *t, const char *path)
{
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", t->root, path);
    FILE *in = fopen(full, "rb");
    if (in == NULL) {
        return NULL;
    }
    ru_text text = ru_text_arena(&t->arena);
    char buf[65536];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, in)) > 0) {
        ru_text_put_n(&text, buf, (int64_t)n);
    }
    fclose(in);
    return text.p;
}

static bool is_source(ru_str name)
{
    return ru_str_ends(name, ".c") || ru_str_ends(name, ".h") || ru_str_ends(name, ".def");
}

/* Depth is that of the source tree: three. */
static void read_folder(rui_tidy *t, rui_file_list *list, const char *folder)
{
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", t->root, folder);
    DIR *dir = opendir(full);
    const struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        ru_str name = ru_str_c(e->d_name);
        char *path = ru_arena_printf(&t->arena, "%s/%s", folder, e->d_name);
        RU_CHECK(path != NULL);
        if (ru_str_starts(name, ".")) {
            continue;
        }
        if (e->d_type == DT_DIR) {
            read_folder(t, list, path);
            continue;
        }
        const char *text = is_source(name) ? rui_tidy_read(t, path) : NULL;
        if (text != NULL) {
            rui_source_file *f = rui_file_list_push(list, &t->arena);
            RU_CHECK(f != NULL);
            *f = rui_tidy_file(t, path, text);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Keys of "@article{key," lines. */
static void read_keys(rui_tidy *t)
{
    ru_map_init(&t->keys, &t->arena, 0);
    const char *text = rui_tidy_read(t, "docs/sources.bib");
    ru_str rest = ru_str_c(text), line;
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t open = ru_str_find(line, "{"), comma = ru_str_find(line, ",");
        if (ru_str_starts(line, "@") && open > 0 && comma > open) {
            RU_CHECK(ru_map_put(&t->keys, ru_str_n(line.p + open + 1, comma - open - 1), NULL) !=
                     NULL);
        }
    }
}

void rui_tidy_open(rui_tidy *t, const char *root)
{
    memset(t, 0, sizeof *t);
    ru_arena_init(&t->arena, 0);
    t->found = ru_text_arena(&t->arena);
    t->root = root;
    rui_file_list list = {0};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(arrows); i++) {
        read_folder(t, &list, arrows[i].folder);
    }
    t->files = list.at;
    t->n_files = list.n;
    read_keys(t);
    ru_map_init(&t->inner, &t->arena, 0);
    ru_map_init(&t->wanted, &t->arena, 0);
}

void rui_tidy_close(rui_tidy *t)
{
    ru_arena_fini(&t->arena);
}

static void finish(rui_tidy *t)
{
    uint32_t n = t->n_found;
    if (n > 0) {
        fputs(t->found.p, stderr);
    }
    rui_tidy_close(t);
    if (n > 0) {
        fail_msg("%u breaches of docs/style.md, listed above", n);
    }
}

/* A ratchet: the number of checks for each 1,000 functions of the product may only grow. Raise it
 * when it has grown. */
enum { CHECKS_A_1000_MIN = 57 };

static void check_checks(rui_tidy *t)
{
    uint32_t functions = 0, checks = 0;
    for (uint32_t i = 0; i < t->n_files; i++) {
        ru_str path = ru_str_c(t->files[i].path), rest = t->files[i].code, line;
        if (!ru_str_ends(path, ".c") || ru_str_ends(path, "_test.c") ||
            ru_str_starts(path, "test/")) {
            continue;
        }
        while (ru_str_next(&rest, '\n', &line)) {
            functions += ru_str_starts(line, "{");
            checks += ru_str_find(line, "RU_CHECK(") >= 0 || ru_str_find(line, "RU_DCHECK(") >= 0;
        }
    }
    if (checks * 1000 < functions * CHECKS_A_1000_MIN) {
        rui_tidy_breach(t, "the product", 0,
                        "%u checks in %u functions; at least %d for each 1,000 (rule 43)", checks,
                        functions, CHECKS_A_1000_MIN);
    }
}

static void test_sources(void **state)
{
    (void)state;
    rui_tidy t;
    rui_tidy_open(&t, RU_SOURCE_ROOT);
    assert_true(t.n_files > 50);
    for (uint32_t i = 0; i < t.n_files; i++) {
        rui_tidy_includes(&t, &t.files[i]);
        rui_tidy_sizes(&t, &t.files[i]);
        rui_tidy_words(&t, &t.files[i]);
        rui_tidy_comments(&t, &t.files[i]);
        rui_tidy_comment_paths(&t, &t.files[i]);
        rui_tidy_shape(&t, &t.files[i]);
    }
    rui_tidy_script_paths(&t);
    rui_tidy_folders(&t);
    check_checks(&t);
    finish(&t);
}

static void test_pages(void **state)
{
    (void)state;
    rui_tidy t;
    rui_tidy_open(&t, RU_SOURCE_ROOT);
    rui_tidy_docs(&t);
    finish(&t);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RUI_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RUI_SANITIZED 1
#endif
#endif

#ifndef RUI_SANITIZED
static const char *const archives[][2] = {
    {"base", "base"},
    {"world", "world"},
    {"env", "env"},
    {"trace", "trace"},
    {"cost", "cost"},
    {"plan", "plan"},
    {"exec", "exec"},
    {"exec/cpu/ref", "ref"},
    {"exec/cpu/kern", "kern"},
    {"exec/cpu/kern", "kern_base"},
    {"exec/cpu/kern", "kern_bytes"},
    {"exec/cpu/kern", "kern_avx2"},
    {"exec/cpu/kern", "kern_avx512"},
    {"exec/cpu/kern", "kern_base_bf16"},
    {"exec/cpu/kern", "kern_avx2_bf16"},
    {"exec/cpu/kern", "kern_avx512_bf16"},
    {"exec/cpu/kern", "kern_base_f32"},
    {"exec/cpu/kern", "kern_base_f64"},
    {"exec/cpu/kern", "kern_base_u32"},
    {"exec/cpu/kern", "kern_base_u64"},
    {"exec/cpu/kern", "kern_avx2_f32"},
    {"exec/cpu/kern", "kern_avx2_f64"},
    {"exec/cpu/kern", "kern_avx2_u32"},
    {"exec/cpu/kern", "kern_avx2_u64"},
    {"exec/cpu/kern", "kern_avx512_f32"},
    {"exec/cpu/kern", "kern_avx512_f64"},
    {"exec/cpu/kern", "kern_avx512_u32"},
    {"exec/cpu/kern", "kern_avx512_u64"},
    {"exec/cpu/low", "cpu"},
    {"comm", "comm"},
    {"sim", "sim"},
    {"store", "store"},
    {"data", "data"},
    {"solve", "solve"},
    {"burst", "burst"},
    {"cluster", "cluster"},
    {"serve", "serve"},
    {"function", "function"},
    {"fleet", "fleet"},
    {"train/model", "model"},
    {"run", "run"},
    {"host", "host"},
    {"train", "train"},
    {"train", "rule_base"},
    {"train", "rule_avx2"},
    {"train", "rule_avx512"},
    {"apps", "apps"},
    {"apps", "app_base"},
    {"apps", "app_avx2"},
    {"apps", "app_avx512"},
    {"launch", "launch"},
    {"web", "web"},
    {"watch", "watch"},
    {"lab", "lab"},
    {"bench", "bench"},
    {"tool", "tool"},
};
#endif

static void test_archives(void **state)
{
    (void)state;
#ifdef RUI_SANITIZED
    skip(); /* sanitizers put their own data and calls into every archive */
#else
    rui_tidy t;
    rui_tidy_open(&t, RU_SOURCE_ROOT);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(archives); i++) {
        if (!rui_tidy_archive(&t, RU_BUILD_ROOT, archives[i][0], archives[i][1])) {
            rui_tidy_breach(&t, archives[i][0], 0, "no archive lib%s.a in the build",
                            archives[i][1]);
        }
    }
    rui_tidy_private_calls(&t);
    rui_tidy_unique_names(&t);
    finish(&t);
#endif
}

/* A struct of 41 fields and a header of 16 functions are one too many. */
static void test_shapes_bite(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        rui_tidy t = {.root = "/nowhere"};
        ru_arena_init(&t.arena, 0);
        t.found = ru_text_arena(&t.arena);
        ru_text text = ru_text_arena(&t.arena);
        ru_text_put(&text, "typedef struct ru_x {\n    struct {\n        int c, d;\n    } in;\n");
        ru_text_put(&text, "    void (*f)(int a, int b);\n    int a, b;\n");
        for (int i = 0; i < 36 + more; i++) {
            ru_text_putf(&text, "    int a%d;\n", i);
        }
        ru_text_put(&text, "} ru_x;\n");
        for (int i = 0; i < 15 + more; i++) {
            ru_text_putf(&text, "int ru_x%d(void (*f)(int), /* ru_y(int) */\n          int n);\n",
                         i);
        }
        rui_source_file f = rui_tidy_file(&t, "train/x.h", text.p);
        rui_tidy_shape(&t, &f);
        assert_string_equal(
            t.found.p == NULL ? "" : t.found.p,
            more ? "train/x.h:0: train/x.h ru_x has 41 fields, at most 40 (rule 53)\n"
                   "train/x.h:0: train/x.h has 16 functions, at most 15 (rule 53)\n"
                 : "");
        rui_tidy_close(&t);
    }
}

/* The rules find what they are for: one bad file each. */
static void paths_bite(void)
{
    static const struct {
        const char *text;
        bool found;
    } rows[] = {
        {"/* base/arena.c, base/arena, base/ar*.c, base */", false},
        {"/* base/none.c */", true},
        {"/* base/none */", true},
        {"/* base/non*.c */", true},
        {"/* x\n * (base/none.c) */", true},
        {"/* base/ar<name>.c, base/NAME.h, base/NAME.c */", false},
        {"/* none/base_<name>.c */", false},
        {"/* base/none_<name>.c */", true},
        {"/* base/ROOM/NAME.c */", true},
        {"/* arena.c, x.c, x_test.c, <math.h>, https://example.org/base/none.c */", false},
        {"/* arena_none.c */", true},
        {"char *p = \"base/none.c\"; int base/none;", false},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        rui_tidy t;
        rui_tidy_open(&t, RU_SOURCE_ROOT);
        rui_source_file f = rui_tidy_file(&t, "data/x.c", rows[i].text);
        rui_tidy_comment_paths(&t, &f);
        if ((t.n_found > 0) != rows[i].found) {
            fail_msg("%s: %s", rows[i].text, t.found.p);
        }
        rui_tidy_close(&t);
    }
}

static void pages_bite(void)
{
    rui_tidy t = {.root = "/nowhere"};
    ru_arena_init(&t.arena, 0);
    t.found = ru_text_arena(&t.arena);
    rui_tidy_page(&t, "docs/x.md",
                  "`docs/none.md`\n```\n`docs/none.md`\n```\n`no/none.c`\n"
                  "[a](none.md#b) [c](https://a.b) [d](#e)\n");
    assert_string_equal(t.found.p, "docs/x.md:1: there is no docs/none.md\n"
                                   "docs/x.md:6: the link to none.md leads nowhere\n");
    rui_tidy_close(&t);
}

static void test_rules_bite(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text, *want;
    } rows[] = {
        {"plan/x.c", "#include \"env/clock.h\"\n",
         "plan/x.c:1: plan may not include env (rule 29)"},
        {"plan/x.c", "/* #include \"env/clock.h\" */\n", ""},
        {"apps/x.c", "#include \"train/app/app.h\"\n#include \"train/app/find.h\"\n",
         "apps/x.c:2: apps may not include train (rule 29)"},
        {"train/x.c", "#include \"exec/x_impl.h\"\n",
         "train/x.c:1: exec/x_impl.h is private to exec (rule 30)"},
        {"world/x.h", "#ifndef X_H\n#define X_H\n#endif\n",
         "world/x.h:1: the guard must be RU_WORLD_X_H (rule 34)"},
        {"data/x.c", "int f(char *s)\n{\n    return atoi(s);\n}\n",
         "data/x.c:3: atoi: use ru_str_i64 (rule 2)"},
        {"data/x.c", "    p = \"atoi(s)\"; /* atoi(s) */ my_atoi(s);\n", ""},
        {"data/x.c", "    getenv(\"HOME\");\n",
         "data/x.c:1: getenv: only base/conf_env.c reads the environment, use ru_conf_env (rule "
         "47)"},
        {"data/x.c", "    pthread_mutex_lock(&m);\n",
         "data/x.c:1: pthread_: locks and atomics live in base/ring.c, exec/pool.c and env/ (rule "
         "37)"},
        {"train/x.c", "    __atomic_load_n(p, 0);\n",
         "train/x.c:1: __atomic_: locks and atomics live in base/ring.c, exec/pool.c and env/ "
         "(rule 37)"},
        {"env/x.c", "    __atomic_load_n(p, 0);\n", ""},
        {"train/model/x.c", "    ru_mutex_lock(&m);\n",
         "train/model/x.c:1: ru_mutex_lock: only the threads that docs/style.md rule 37 names "
         "share state; others talk over rings"},
        {"train/worker/x.c", "    ru_mutex_lock(&m);\n", ""},
        {"train/x.c", "/* TODO: later */\n", "train/x.c:1: TODO without an issue number (rule 42)"},
        {"train/x.c", "/* TODO #12: later */\n", ""},
        {"train/x.c", "/* Source: nobody-1999 sec 3 */\n",
         "train/x.c:1: source nobody-1999 is not in docs/sources.bib (rule 41)"},
        {"train/x.c", "typedef struct ru_job_t {\n} ru_job_t;\n",
         "train/x.c:1: ru_job_t: the ending _t is POSIX's (rule 8)\n"
         "train/x.c:2: ru_job_t: the ending _t is POSIX's (rule 8)"},
        {"plan/net/x.c", "#include \"plan/row/x.h\"\n#include \"plan/cut/x.h\"\n",
         "plan/net/x.c:2: plan/net may not include plan/cut: rooms of plan/ know row/ only"},
        {"train/x.c", "\tint x;\n", "train/x.c:1: a tab (rule 53)"},
        {"train/x.c", "int x; \n", "train/x.c:1: blanks at the end of the line (rule 53)"},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        rui_tidy t = {.root = "/nowhere"};
        ru_arena_init(&t.arena, 0);
        t.found = ru_text_arena(&t.arena);
        ru_map_init(&t.keys, &t.arena, 0);
        rui_source_file f = rui_tidy_file(&t, rows[i].path, rows[i].text);
        rui_tidy_includes(&t, &f);
        rui_tidy_sizes(&t, &f);
        rui_tidy_words(&t, &f);
        rui_tidy_comments(&t, &f);
        rui_tidy_shape(&t, &f);
        ru_str found = ru_str_trim(ru_str_c(t.found.p));
        if (!ru_str_eq_c(found, rows[i].want)) {
            fail_msg("for %s: %s", rows[i].want, t.found.p);
        }
        rui_tidy_close(&t);
    }
    pages_bite();
    paths_bite();
    assert_true(rui_tidy_arrow("cost", "world") && !rui_tidy_arrow("world", "cost"));
    assert_false(rui_tidy_arrow("tool", "test"));
}

RU_TESTS(test_tidy, cmocka_unit_test(test_rules_bite), cmocka_unit_test(test_shapes_bite),
         cmocka_unit_test(test_sources), cmocka_unit_test(test_pages),
         cmocka_unit_test(test_archives))
