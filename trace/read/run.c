/* The traces of a run: segments are put together by the names of their files.
 *
 *   rank<k>.trace  rank<k>+1.trace ...     the first recording of process k, in segments
 *   rank<k>-2.trace  rank<k>-2+1.trace ... its second one, after a resume */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "trace/read/fold.h"
#include "trace/read/read_impl.h"

typedef struct piece {
    const char *name; /* of the file, in the folder */
    uint32_t rank, recording, segment;
} piece;

static int by_place(const void *pa, const void *pb)
{
    const piece *a = pa, *b = pb;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    if (a->recording != b->recording) {
        return a->recording < b->recording ? -1 : 1;
    }
    if (a->segment != b->segment) {
        return a->segment < b->segment ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* Number behind `mark` at *p, which moves behind it; dflt where the mark is not. */
static uint32_t number_at(const char **p, char mark, uint32_t dflt)
{
    if (**p != mark) {
        return dflt;
    }
    char *end;
    unsigned long v = strtoul(*p + 1, &end, 10);
    *p = end;
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

/* false: not the name of a trace. Names of another form are traces of their own. */
static bool piece_of(const char *name, uint32_t other, piece *out)
{
    size_t n = strlen(name);
    if (n <= 6 || strcmp(name + n - 6, ".trace") != 0) {
        return false;
    }
    *out = (piece){.name = name, .rank = UINT32_MAX, .recording = other};
    if (strncmp(name, "rank", 4) == 0) {
        const char *p = name + 3;
        piece q = {.name = name};
        q.rank = number_at(&p, 'k', 0);
        q.recording = number_at(&p, '-', 1);
        q.segment = number_at(&p, '+', 0);
        *out = strcmp(p, ".trace") == 0 ? q : *out;
    }
    return true;
}

static ru_status load_pieces(const char *dir, const piece *at, uint32_t n, ru_arena *arena,
                             ru_trace *out, ru_err *err)
{
    ru_map_file *maps = RU_NEW(arena, ru_map_file, n);
    rui_trace_part *parts = RU_NEW(arena, rui_trace_part, n);
    if (maps == NULL || parts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the trace is full");
    }
    ru_status st = RU_OK;
    uint32_t mapped = 0;
    while (mapped < n && st == RU_OK) {
        const char *path = ru_path_join(arena, dir, at[mapped].name);
        st = path == NULL ? RU_FAIL(err, RU_E_LIMIT, "the arena for the trace is full")
                          : ru_file_map(path, &maps[mapped], err);
        if (st == RU_OK) {
            parts[mapped] = (rui_trace_part){maps[mapped].data, maps[mapped].size_bytes};
            mapped++;
        }
    }
    if (st == RU_OK) {
        st = rui_trace_parse_parts(parts, n, arena, out, err);
        st = st == RU_OK ? st : ru_err_wrap(err, st, "%s/%s", dir, at[0].name);
    }
    while (mapped > 0) {
        ru_file_unmap(&maps[--mapped]);
    }
    return st;
}

/* The traces of a folder in the order of rank, recording, segment. */
static ru_status list_pieces(const char *dir, ru_arena *arena, piece **at, uint32_t *pieces,
                             ru_err *err)
{
    char **names;
    uint32_t count;
    RU_TRY(ru_dir_list(dir, arena, &names, &count, err));
    *at = RU_NEW(arena, piece, count > 0 ? count : 1);
    *pieces = 0;
    if (*at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the traces is full");
    }
    for (uint32_t k = 0; k < count; k++) {
        *pieces += piece_of(names[k], k, &(*at)[*pieces]);
    }
    if (*pieces == 0) {
        return RU_FAIL(err, RU_E_MISSING,
                       "%s contains no *.trace file; name the folder of a run or a .trace file",
                       dir);
    }
    qsort(*at, *pieces, sizeof **at, by_place);
    return RU_OK;
}

static ru_status load_dir(const char *dir, ru_arena *arena, ru_trace **traces, uint32_t *n,
                          ru_err *err)
{
    piece *at;
    uint32_t pieces;
    RU_TRY(list_pieces(dir, arena, &at, &pieces, err));
    *traces = RU_NEW(arena, ru_trace, pieces);
    *n = 0;
    if (*traces == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the traces is full");
    }
    for (uint32_t from = 0, to; from < pieces; from = to) {
        for (to = from + 1;
             to < pieces && at[to].rank == at[from].rank && at[to].recording == at[from].recording;
             to++) {
        }
        RU_TRY(load_pieces(dir, &at[from], to - from, arena, &(*traces)[*n], err));
        ++*n;
    }
    return RU_OK;
}

ru_status ru_trace_run_load(const char *run, ru_arena *arena, ru_trace **traces, uint32_t *n,
                            ru_err *err)
{
    if (!ru_path_exists(run)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "there is no run %s; name a folder that `rubato train` created", run);
    }
    if (!ru_path_is_dir(run)) {
        *traces = RU_NEW(arena, ru_trace, 1);
        *n = 1;
        return *traces == NULL ? RU_FAIL(err, RU_E_LIMIT, "the arena for the trace is full")
                               : ru_trace_load(run, arena, *traces, err);
    }
    const char *dir = ru_path_join(arena, run, "trace");
    if (dir == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the traces is full");
    }
    return load_dir(ru_path_is_dir(dir) ? dir : run, arena, traces, n, err);
}

ru_status ru_trace_run_load_end(const char *run, int64_t bytes_max, ru_arena *arena,
                                ru_trace **traces, uint32_t *n, ru_err *err)
{
    piece *at;
    uint32_t pieces;
    const char *dir = ru_path_join(arena, run, "trace");
    if (dir == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the traces is full");
    }
    RU_TRY(list_pieces(dir, arena, &at, &pieces, err));
    *traces = RU_NEW(arena, ru_trace, pieces);
    *n = 0;
    for (uint32_t k = 0; *traces != NULL && k < pieces; k++) {
        const char *path = ru_path_join(arena, dir, at[k].name);
        if (k + 1 < pieces && at[k + 1].rank == at[k].rank) {
            continue; /* an older one of the same rank */
        }
        if (path == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena for the traces is full");
        }
        RU_TRY(ru_trace_load_end(path, bytes_max, arena, &(*traces)[*n], err));
        ++*n;
    }
    return *traces == NULL ? RU_FAIL(err, RU_E_LIMIT, "the arena for the traces is full") : RU_OK;
}
