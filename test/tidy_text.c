/* Rules about the text of one source file. */
#include <ctype.h>
#include <string.h>

#include "test/tidy.h"

enum { LINES_MAX = 800, FUNCTION_LINES_MAX = 70, COLUMNS_MAX = 100 };

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Index of `word` in the line from `from` on, as a whole word when it begins or ends with a letter.
 */
static int64_t find_word(ru_str line, const char *word, int64_t from)
{
    int64_t n = (int64_t)strlen(word);
    for (;;) {
        int64_t at = ru_str_find(ru_str_from(line, from), word);
        if (at < 0) {
            return -1;
        }
        at += from;
        bool left = at == 0 || !is_word(line.p[at - 1]) || !is_word(word[0]);
        bool right = at + n >= line.n || !is_word(line.p[at + n]) || !is_word(word[n - 1]);
        if (left && right) {
            return at;
        }
        from = at + 1;
    }
}

static bool is_test(const rui_source_file *f)
{
    return strcmp(f->folder, "test") == 0 || strcmp(f->folder, "bench") == 0 ||
           ru_str_ends(ru_str_c(f->path), "_test.c");
}

static void check_guard(rui_tidy *t, const rui_source_file *f)
{
    char want[256] = "RU_";
    size_t n = 3;
    for (const char *p = f->path; *p != '\0' && n + 1 < sizeof want; p++) {
        want[n++] = is_word(*p) ? (char)toupper((unsigned char)*p) : '_';
    }
    want[n] = '\0';
    ru_str rest = f->code, line;
    for (uint32_t i = 1; ru_str_next(&rest, '\n', &line); i++) {
        if (ru_str_starts(line, "#ifndef ")) {
            /* In a subfolder the middle word may be left out. */
            ru_str guard = ru_str_from(line, 8);
            bool nested = strchr(strchr(f->path, '/') + 1, '/') != NULL &&
                          ru_str_starts(guard, "RU_") && ru_str_ends(guard, "_H");
            if (!nested && !ru_str_eq_c(guard, want)) {
                rui_tidy_breach(t, f->path, i, "the guard must be %s (rule 34)", want);
            }
            return;
        }
    }
    rui_tidy_breach(t, f->path, 1, "a header without the guard %s (rule 34)", want);
}

static void check_include(rui_tidy *t, const rui_source_file *f, ru_str what, uint32_t line)
{
    int64_t slash = ru_str_find(what, "/");
    if (slash < 0) {
        bool made = ru_str_eq_c(what, "suites.def");
        if (!made) {
            rui_tidy_breach(t, f->path, line, "include \"folder/name.h\", not \"%.*s\" (rule 34)",
                            RU_STR_ARG(what));
        }
        return;
    }
    char other[64];
    ru_text o = ru_text_into(other, sizeof other);
    ru_text_put_n(&o, what.p, slash);
    bool same = strcmp(other, f->folder) == 0;
    bool reaches_tests =
        is_test(f) && (strcmp(other, "test") == 0 || ru_str_starts(what, "lab/worlds/"));
    /* An arrow may lead to one room of a folder only, or to one header. */
    char room[64], header[256];
    ru_text h = ru_text_into(header, sizeof header);
    ru_text_put_n(&h, what.p, what.n);
    ru_text r = ru_text_into(room, sizeof room);
    int64_t second = ru_str_find(ru_str_from(what, slash + 1), "/");
    ru_text_put_n(&r, what.p, second >= 0 ? slash + 1 + second : slash);
    if (!reaches_tests && !rui_tidy_arrow(f->folder, other) && !rui_tidy_arrow(f->folder, room) &&
        !rui_tidy_arrow(f->folder, header)) {
        rui_tidy_breach(t, f->path, line, "%s may not include %s (rule 29)", f->folder, other);
    }
    if (!same && ru_str_ends(what, "_impl.h") && strcmp(f->folder, "test") != 0) {
        rui_tidy_breach(t, f->path, line, "%.*s is private to %s (rule 30)", RU_STR_ARG(what),
                        other);
    }
}

/* x.c includes x.h (or x_impl.h) before anything else: proof that the header stands alone. */
static void check_own_first(rui_tidy *t, const rui_source_file *f, ru_str first, uint32_t line)
{
    char own[256], private_own[256];
    ru_text a = ru_text_into(own, sizeof own), b = ru_text_into(private_own, sizeof private_own);
    ru_str stem = ru_str_n(f->path, (int64_t)strlen(f->path) - 2);
    ru_text_putf(&a, "%.*s.h", RU_STR_ARG(stem));
    ru_text_putf(&b, "%.*s_impl.h", RU_STR_ARG(stem));
    bool has_own = false;
    for (uint32_t i = 0; i < t->n_files; i++) {
        has_own = has_own || strcmp(t->files[i].path, own) == 0;
    }
    if (has_own && !ru_str_eq_c(first, own) && !ru_str_eq_c(first, private_own)) {
        rui_tidy_breach(t, f->path, line, "include %s before anything else (rule 34)", own);
    }
}

void rui_tidy_includes(rui_tidy *t, const rui_source_file *f)
{
    bool header = ru_str_ends(ru_str_c(f->path), ".h");
    if (header) {
        check_guard(t, f);
    }
    if (header && t->n_files > 0 && ru_str_find(f->text, "Thread:") < 0) {
        rui_tidy_breach(t, f->path, 1,
                        "the thread rule is missing: one line, Thread: ... (rule 38)");
    }
    uint32_t includes = 0;
    /* Names stand in quotes, which `code` blanks: take them from the text of the same line. */
    ru_str code = f->code, line, rest = f->text, raw;
    for (uint32_t i = 1; ru_str_next(&code, '\n', &line) && ru_str_next(&rest, '\n', &raw); i++) {
        if (ru_str_starts(line, "#include <") && ru_str_ends(ru_str_c(f->path), ".c")) {
            if (includes++ == 0) {
                check_own_first(t, f, (ru_str){0}, i);
            }
        } else if (ru_str_starts(line, "#include \"")) {
            ru_str what = ru_str_from(raw, 10);
            int64_t end = ru_str_find(what, "\"");
            what.n = end >= 0 ? end : what.n;
            if (includes++ == 0 && ru_str_ends(ru_str_c(f->path), ".c")) {
                check_own_first(t, f, what, i);
            }
            check_include(t, f, what, i);
        }
    }
}

/* A function's body is what stands between "{" and "}" in the first column. */
static void check_functions(rui_tidy *t, const rui_source_file *f)
{
    ru_str rest = f->code, line;
    uint32_t open = 0;
    for (uint32_t i = 1; ru_str_next(&rest, '\n', &line); i++) {
        if (ru_str_eq_c(line, "{")) {
            open = i;
        } else if (ru_str_starts(line, "}") && open > 0) {
            if (i - open - 1 > FUNCTION_LINES_MAX) {
                rui_tidy_breach(t, f->path, open, "a function of %u lines, at most %d (rule 53)",
                                i - open - 1, FUNCTION_LINES_MAX);
            }
            open = 0;
        }
    }
}

static uint32_t columns(ru_str line)
{
    uint32_t n = 0;
    for (int64_t i = 0; i < line.n; i++) {
        n += ((uint8_t)line.p[i] & 0xc0) != 0x80;
    }
    return n;
}

void rui_tidy_sizes(rui_tidy *t, const rui_source_file *f)
{
    bool table = ru_str_ends(ru_str_c(f->path), ".def");
    ru_str rest = f->text, line;
    uint32_t i = 0;
    while (ru_str_next(&rest, '\n', &line)) {
        i++;
        if (columns(line) > COLUMNS_MAX && !table) {
            rui_tidy_breach(t, f->path, i, "%u columns, at most %d (rule 53)", columns(line),
                            COLUMNS_MAX);
        }
        if (ru_str_find(line, "\t") >= 0) {
            rui_tidy_breach(t, f->path, i, "a tab (rule 53)");
        }
        if (line.n > 0 && (line.p[line.n - 1] == ' ' || line.p[line.n - 1] == '\r')) {
            rui_tidy_breach(t, f->path, i, "blanks at the end of the line (rule 53)");
        }
    }
    if (i > LINES_MAX + 1 && !table) {
        rui_tidy_breach(t, f->path, i, "%u lines, at most %d: split by meaning (rule 53)", i - 1,
                        LINES_MAX);
    }
    check_functions(t, f);
}

/* Words that may stand only in the files of `where` ("": nowhere; "a/ b.c": these folders and
 * files). */
static const struct {
    const char *word, *where, *why;
    bool in_tests; /* tests may use it */
} banned[] = {
    {"setjmp", "", "control leaves by return (rule 2)", true},
    {"longjmp", "", "control leaves by return (rule 2)", true},
    {"alloca", "", "use an arena (rule 2)", false},
    {"strcpy", "", "use ru_text or memcpy with a length (rule 2)", true},
    {"strcat", "", "use ru_text (rule 2)", true},
    {"sprintf", "", "use ru_text or snprintf (rule 2)", false},
    {"vsprintf", "", "use ru_text or vsnprintf (rule 2)", false},
    {"gets", "", "use ru_file_read (rule 2)", false},
    {"strtok", "", "use ru_str_next (rule 2)", false},
    {"atoi", "", "use ru_str_i64 (rule 2)", false},
    {"atol", "", "use ru_str_i64 (rule 2)", false},
    {"atoll", "", "use ru_str_i64 (rule 2)", false},
    {"atof", "", "use ru_str_f64 (rule 2)", false},
    {"rand", "", "use base/rng.h (rule 33)", false},
    {"srand", "", "use base/rng.h (rule 33)", false},
    {"drand48", "", "use base/rng.h (rule 33)", false},
    {"localtime", "", "not thread-safe (rule 3)", false},
    {"gmtime", "", "not thread-safe (rule 3)", false},
    {"ctime", "", "not thread-safe (rule 3)", false},
    {"asctime", "", "not thread-safe (rule 3)", false},
    {"system", "", "use env/process/process.h (rule 2)", true},
    {"popen", "", "use env/process/process.h (rule 2)", true},
    {"usleep", "env/", "sleeping belongs to env/ (rule 35)", true},
    {"nanosleep", "env/", "sleeping belongs to env/ (rule 35)", true},
    {"getenv", "base/conf_env.c",
     "only base/conf_env.c reads the environment, use ru_conf_env (rule 47)", false},
    {"secure_getenv", "base/conf_env.c",
     "only base/conf_env.c reads the environment, use ru_conf_env (rule 47)", false},
    /* kernels are the candidates of `kernel`; the others show one bound or what is, no method */
    {"ru_report_candidate",
     "plan/row/ plan/step/kernel_policy.c plan/crew/share_policy.c plan/crew/reassign_policy.c "
     "plan/disk/storage_policy.c",
     "runners-up are planned and judged by ru_policy_rivals (plan/row/policy.h)", true},
    {"ru_report_beside", "plan/row/", "the judge of ru_policy_rivals says ru_rival_beside", true},
};

static const char *const lock_words[] = {"pthread_", "__atomic_",   "__sync_",  "_Atomic",
                                         "atomic_",  "stdatomic.h", "mtx_lock", "sem_wait"};

/* Who may take a lock of env/thread.h: the threads that read ahead, write traces and reports, and
 * the compute and adder threads of a worker, a program that is a member and its loop thread, and
 * the one that receives weights. */
static const char lock_users[] =
    "env/ trace/record/writer.c trace/record/recorder.c web/objects.c web/ranges.c "
    "data/format/image.c "
    "data/dataset.c "
    "data/stream.c data/stream_open.c data/ahead.c data/cache.c data/segments.c "
    "train/worker/ train/embed/ train/remote/fetch.c serve/crew.c serve/server_load.c "
    "serve/scribe.c serve/journal.c "
    "fleet/functions.c fleet/functions_follow.c "
    "fleet/server.c fleet/server_hear.c fleet/server_loop.c fleet/client/ "
    "run/decisions.c "
    "run/report.c run/report_view.c";

static bool stands_in(const char *path, const char *where)
{
    ru_str rest = ru_str_c(where), place;
    while (ru_str_next(&rest, ' ', &place)) {
        bool folder = place.n > 0 && place.p[place.n - 1] == '/';
        bool head = strncmp(path, place.p, (size_t)place.n) == 0 && place.n > 0;
        if (head && (folder || path[place.n] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Is the word at `at` called: does an opening bracket follow? */
static bool is_called(ru_str line, int64_t at, const char *word)
{
    ru_str after = ru_str_from(line, at + (int64_t)strlen(word));
    return after.n > 0 && after.p[0] == '(';
}

static void check_banned(rui_tidy *t, const rui_source_file *f, ru_str line, uint32_t number)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(banned); k++) {
        int64_t at = find_word(line, banned[k].word, 0);
        if (at < 0 || !is_called(line, at, banned[k].word) || stands_in(f->path, banned[k].where) ||
            (banned[k].in_tests && is_test(f))) {
            continue;
        }
        rui_tidy_breach(t, f->path, number, "%s: %s", banned[k].word, banned[k].why);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(lock_words) && !is_test(f); k++) {
        int64_t at = ru_str_find(line, lock_words[k]);
        if (at >= 0 && (at == 0 || !is_word(line.p[at - 1])) &&
            !stands_in(f->path, "base/ring.c exec/pool.c env/")) {
            rui_tidy_breach(
                t, f->path, number,
                "%s: locks and atomics live in base/ring.c, exec/pool.c and env/ (rule 37)",
                lock_words[k]);
        }
    }
    int64_t lock = ru_str_find(line, "ru_mutex_lock(");
    if (lock >= 0 && !is_test(f) && !stands_in(f->path, lock_users)) {
        rui_tidy_breach(t, f->path, number,
                        "ru_mutex_lock: only the threads that docs/style.md rule 37 names share "
                        "state; others talk over rings");
    }
}

/* ru_something_t */
static void check_type_names(rui_tidy *t, const rui_source_file *f, ru_str line, uint32_t number)
{
    for (int64_t i = 0; i < line.n; i++) {
        if (!is_word(line.p[i]) || (i > 0 && is_word(line.p[i - 1]))) {
            continue;
        }
        int64_t end = i;
        while (end < line.n && is_word(line.p[end])) {
            end++;
        }
        ru_str word = ru_str_n(line.p + i, end - i);
        bool ours = ru_str_starts(word, "ru_") || ru_str_starts(word, "rui_");
        if (ours && ru_str_ends(word, "_t")) {
            rui_tidy_breach(t, f->path, number, "%.*s: the ending _t is POSIX's (rule 8)",
                            RU_STR_ARG(word));
            return;
        }
        i = end;
    }
}

void rui_tidy_words(rui_tidy *t, const rui_source_file *f)
{
    bool own_rules = strcmp(f->path, "test/tidy_text.c") == 0;
    ru_str rest = f->code, line;
    for (uint32_t i = 1; ru_str_next(&rest, '\n', &line) && !own_rules; i++) {
        check_banned(t, f, line, i);
        check_type_names(t, f, line, i);
    }
}

/* A key of docs/sources.bib at the front of `s`: words-joined-by-hyphens and a year; its length or
 * 0. */
static int64_t key_at(ru_str s)
{
    int64_t n = 0, year = 0;
    while (n < s.n &&
           (islower((unsigned char)s.p[n]) || isdigit((unsigned char)s.p[n]) || s.p[n] == '-')) {
        n++;
    }
    for (int64_t i = 0; i + 5 <= n; i++) {
        bool digits = s.p[i] == '-';
        for (int64_t k = 1; k <= 4; k++) {
            digits = digits && isdigit((unsigned char)s.p[i + k]);
        }
        bool century = s.p[i + 1] == '1' || s.p[i + 1] == '2';
        bool whole = i + 5 == n || s.p[i + 5] == '-';
        year = digits && century && whole && i > 0 ? i + 5 : year;
    }
    return year > 0 && islower((unsigned char)s.p[0]) ? n : 0;
}

static void check_keys(rui_tidy *t, const rui_source_file *f, ru_str line, uint32_t number)
{
    int64_t at = ru_str_find(line, "Source: ");
    for (int64_t i = at < 0 ? line.n : at + 8; i < line.n; i++) {
        int64_t n = i == 0 || !is_word(line.p[i - 1]) ? key_at(ru_str_from(line, i)) : 0;
        if (n > 0) {
            ru_str key = ru_str_n(line.p + i, n);
            if (ru_map_get(&t->keys, key) == NULL) {
                rui_tidy_breach(t, f->path, number,
                                "source %.*s is not in docs/sources.bib (rule 41)",
                                RU_STR_ARG(key));
            }
            i += n;
        }
    }
}

void rui_tidy_comments(rui_tidy *t, const rui_source_file *f)
{
    bool own_rules = strncmp(f->path, "test/tidy", 9) == 0;
    ru_str rest = f->text, line;
    for (uint32_t i = 1; ru_str_next(&rest, '\n', &line) && !own_rules; i++) {
        int64_t todo = find_word(line, "TODO", 0);
        if (todo >= 0 && ru_str_find(ru_str_from(line, todo), "#") < 0) {
            rui_tidy_breach(t, f->path, i, "TODO without an issue number (rule 42)");
        }
        check_keys(t, f, line, i);
    }
}
