/* Rules about the shape of the tree: files of a folder, fields of a struct, functions of a header,
 * and which rooms of plan/ may know each other. What is too large today stands in a list with its
 * size, which may only shrink. */
#include <string.h>

#include "base/vec.h"
#include "test/tidy.h"

enum { FILES_MAX = 40, FIELDS_MAX = 40, FUNCTIONS_MAX = 15 };

/* Folders, structs and headers above the limits: lower the number when one has become smaller, and
 * remove the row when it is within them. */
static const struct {
    const char *what;
    uint32_t n;
} too_large[] = {
    {"env/link/link_tcp_impl.h rui_conn", 49},
    {"trace/record/recorder_impl.h ru_recorder", 49},
    {"exec/cpu/low/low.h rui_low", 52},
    {"comm/member/member_impl.h ru_member", 68},
    {"comm/member/member_impl.h rui_m_peer", 42},
    {"comm/chan/chan.h", 16},
    {"comm/chan/egress_impl.h rui_egress", 43},
    {"comm/chan/chan_impl.h rui_peer", 42},
    {"comm/chan/chan_impl.h ru_chan", 58},
    {"data/stream_impl.h ru_stream", 49},
    {"train/engine/engine_slice_impl.h rui_slice", 45},
    {"train/engine/engine_impl.h rui_lead", 56},
    {"train/engine/engine_impl.h ru_engine", 45},
    {"train/driver/trainer_impl.h rui_trainer", 71},
    {"sim/sim_impl.h ru_sim", 49},
    {"lab/job.h ru_sim_job", 47},
    {"base/pb.h", 23},
    {"base/rng.h", 26},
    {"base/str.h", 29},
    {"base/wire.h", 18},
    {"bench/bench.h", 24},
    {"comm/chan/egress.h", 22},
    {"comm/chan/ingress.h", 16},
    {"comm/member/member.h", 17},
    {"comm/ps/ps.h", 35},
    {"data/reader.h", 31},
    {"env/process/self.h", 21},
    {"env/thread.h", 17},
    {"exec/cpu/low/low.h", 21},
    {"exec/cpu/low/prim.h", 17},
    {"exec/cpu/lower/lower.h", 42},
    {"sim/sim.h", 36},
    {"trace/record/recorder.h", 21},
    {"train/engine/engine.h", 17},
    {"world/graph/graph.h", 32},
    {"world/onnx/onnx_ml.h", 31},
};

static void judge(rui_tidy *t, const char *path, const char *what, uint32_t n, uint32_t max,
                  const char *unit)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(too_large); i++) {
        if (strcmp(too_large[i].what, what) != 0) {
            continue;
        }
        if (n < too_large[i].n) {
            rui_tidy_breach(t, path, 0, "%s has %u %s, %u in the list of test/tidy_house.c: %s",
                            what, n, unit, too_large[i].n,
                            n > max ? "lower the number there" : "remove the row there");
        }
        max = too_large[i].n > max ? too_large[i].n : max;
    }
    if (n > max) {
        rui_tidy_breach(t, path, 0, "%s has %u %s, at most %u (rule 53)", what, n, unit, max);
    }
}

static ru_str folder_of(ru_str path)
{
    int64_t n = path.n;
    while (n > 0 && path.p[n - 1] != '/') {
        n--;
    }
    return ru_str_n(path.p, n > 0 ? n - 1 : 0);
}

/* base/ holds one small thing a file, exec/cpu/lower one family of operators a file: no limit
 * there. */
void rui_tidy_folders(rui_tidy *t)
{
    ru_map seen;
    ru_map_init(&seen, &t->arena, 0);
    for (uint32_t i = 0; i < t->n_files; i++) {
        ru_str folder = folder_of(ru_str_c(t->files[i].path));
        bool wide = ru_str_eq_c(folder, "base") || ru_str_eq_c(folder, "exec/cpu/lower");
        if (wide || ru_map_get(&seen, folder) != NULL) {
            continue;
        }
        RU_CHECK(ru_map_put(&seen, folder, NULL) != NULL);
        uint32_t n = 0;
        for (uint32_t k = i; k < t->n_files; k++) {
            ru_str path = ru_str_c(t->files[k].path);
            n += ru_str_eq(folder_of(path), folder) && !ru_str_ends(path, "_test.c");
        }
        const char *name = ru_arena_strn(&t->arena, folder.p, folder.n);
        RU_CHECK(name != NULL);
        judge(t, name, name, n, FILES_MAX, "files");
    }
}

/* The struct whose body begins at `body` ends where its brackets close: how many fields are there?
 * A struct or union inside counts as one. */
static uint32_t fields_of(ru_str body, int64_t *end)
{
    uint32_t n = 0;
    int braces = 1, round = 0;
    bool any = false;
    int64_t i = 0;
    for (; i < body.n && braces > 0; i++) {
        char c = body.p[i];
        braces += (c == '{') - (c == '}');
        round += (c == '(') - (c == ')');
        bool own = braces == 1 && round == 0;
        if (own && (c == ';' || c == ',')) {
            n += any;
            any = false;
        } else if (c != ' ' && c != '\n') {
            any = true;
        }
    }
    *end = i;
    return n;
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

static void check_structs(rui_tidy *t, const rui_source_file *f)
{
    ru_str rest = f->code, line;
    while (ru_str_next(&rest, '\n', &line)) {
        ru_str head = ru_str_starts(line, "typedef ") ? ru_str_from(line, 8) : line;
        if (!ru_str_starts(head, "struct ") || !ru_str_ends(head, "{")) {
            continue;
        }
        ru_str name = ru_str_trim(ru_str_n(head.p + 7, head.n - 8));
        int64_t end = 0;
        uint32_t n = fields_of(rest, &end);
        if (name.n == 0) { /* typedef struct { ... } name; */
            name = ru_str_trim(ru_str_from(rest, end));
            int64_t k = 0;
            while (k < name.n && is_name(name.p[k])) {
                k++;
            }
            name = ru_str_n(name.p, k);
        }
        char *what = ru_arena_printf(&t->arena, "%s %.*s", f->path, RU_STR_ARG(name));
        RU_CHECK(what != NULL);
        judge(t, f->path, what, n, FIELDS_MAX, "fields");
    }
}

/* Declarations in the first column that name a function: "type ru_name(". */
static void check_functions(rui_tidy *t, const rui_source_file *f)
{
    if (!ru_str_ends(ru_str_c(f->path), ".h") || ru_str_ends(ru_str_c(f->path), "_impl.h")) {
        return;
    }
    ru_str rest = f->code, line;
    uint32_t n = 0;
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t open = ru_str_find(line, "(");
        if (open <= 0 || !is_name(line.p[0]) || ru_str_starts(line, "typedef")) {
            continue;
        }
        int64_t at = open;
        while (at > 0 && is_name(line.p[at - 1])) {
            at--;
        }
        ru_str name = ru_str_n(line.p + at, open - at);
        n += at > 0 && (ru_str_starts(name, "ru_") || ru_str_starts(name, "rui_"));
    }
    judge(t, f->path, f->path, n, FUNCTIONS_MAX, "functions");
}

/* "plan/net/order.c" may include plan/row/ and plan/net/ only. */
static void check_rooms(rui_tidy *t, const rui_source_file *f)
{
    ru_str room = folder_of(ru_str_c(f->path)), rest = f->text, line;
    if (!ru_str_starts(room, "plan/") || ru_str_ends(ru_str_c(f->path), "_test.c")) {
        return;
    }
    for (uint32_t i = 1; ru_str_next(&rest, '\n', &line); i++) {
        if (!ru_str_starts(line, "#include \"plan/")) {
            continue;
        }
        ru_str other = folder_of(ru_str_from(line, 10));
        if (!ru_str_eq(other, room) && !ru_str_eq_c(other, "plan/row")) {
            rui_tidy_breach(t, f->path, i,
                            "%.*s may not include %.*s: rooms of plan/ know row/ only",
                            RU_STR_ARG(room), RU_STR_ARG(other));
        }
    }
}

void rui_tidy_shape(rui_tidy *t, const rui_source_file *f)
{
    check_rooms(t, f);
    if (strncmp(f->path, "test/", 5) != 0 && strncmp(f->path, "lab/worlds/", 11) != 0) {
        check_structs(t, f);
        check_functions(t, f);
    }
}
