/* Traces of jobs as inputs of the policy `storage`: one temporary file for each job that shuffles.
 *
 *   job0 <tab> submit s <tab> gap s <tab> input <tab> shuffle <tab> output bytes [<tab> path read]
 *
 * The trace does not say how the files were used, so that is laid over it: a map task reads 256 MB
 * and 200 run at once, each at 20 MB/s; a reduce task takes 0.25 GB; a block for each pair of them
 * is one operation, and so is each MB written and read; the file lives as long as its job. */
#include <math.h>
#include <stddef.h>

#include "store/gunzip.h"
#include "store/natural.h"

#define MAP_BYTES    256e6
#define REDUCES      4e-9 /* of a byte that is shuffled, in groups of four for each GB */
#define TASK_BYTES_S 20e6
#define SMALLEST     1e6 /* smaller files stay in memory */

typedef struct job {
    double open_s, input, shuffle, output;
    ru_str path;
} job;

static bool number(ru_str *rest, double *out)
{
    ru_str word;
    return ru_str_next(rest, '\t', &word) && ru_str_f64(ru_str_trim(word), out) && *out >= 0 &&
           *out <= 1e17;
}

static bool job_of(ru_str line, job *out)
{
    ru_str rest = line, name, path = {0};
    double gap;
    job j = {0};
    if (!ru_str_next(&rest, '\t', &name) || !ru_str_starts(name, "job") ||
        !number(&rest, &j.open_s) || !number(&rest, &gap) || !number(&rest, &j.input) ||
        !number(&rest, &j.shuffle) || !number(&rest, &j.output)) {
        return false;
    }
    j.path = ru_str_next(&rest, '\t', &path) ? ru_str_trim(path) : (ru_str){0};
    *out = j;
    return j.open_s <= 4e9;
}

static bool is_trace(const char *path, ru_str text)
{
    ru_str line;
    job j;
    if (ru_is_gzip(text)) {
        return ru_str_ends(ru_str_c(path), ".tsv.gz");
    }
    return ru_str_next(&text, '\n', &line) && job_of(line, &j);
}

/* Returns size times life. */
static double put_file(const job *b, ru_arena *arena, ru_json *j)
{
    double maps = fmin(fmax(ceil(b->input / MAP_BYTES), 1), 5000);
    double reduces = fmin(4 * ceil(b->shuffle / 4 * REDUCES), 1000);
    double life = 60 + (b->input + b->shuffle + b->output) / (TASK_BYTES_S * fmin(maps, 200));
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "group", ru_arena_strn(arena, b->path.p, b->path.n));
    ru_json_f64(j, "open_s", b->open_s);
    ru_json_f64(j, "input_bytes", b->input);
    ru_json_f64(j, "writers", maps);
    ru_json_f64(j, "readers", reduces);
    ru_json_f64(j, "size_bytes", b->shuffle);
    ru_json_f64(j, "life_s", fmin(life, 4e9));
    ru_json_f64(j, "ops", fmax(maps * reduces, b->shuffle / 1e6) + b->shuffle / 1e6);
    ru_json_close(j);
    return b->shuffle * fmin(life, 4e9);
}

static ru_status read_trace(const char *path, ru_str text, ru_arena *arena, ru_json *j, ru_err *err)
{
    if (ru_is_gzip(text)) {
        RU_TRY(ru_gunzip(path, text, arena, &text, err));
    }
    double last_s = 0, byte_s = 0;
    uint32_t n = 0, files = 0;
    ru_str line;
    ru_json_open(j, "files", '[');
    for (; ru_str_next(&text, '\n', &line); n++) {
        job b;
        if (ru_str_trim(line).n == 0 && ru_str_trim(text).n == 0) {
            break;
        }
        if (!job_of(line, &b) || b.open_s < last_s) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s:%u: '%.*s', expected 'job0<tab>SUBMIT_S<tab>GAP_S<tab>INPUT<tab>"
                           "SHUFFLE<tab>OUTPUT', bytes, jobs in the order of their submission",
                           path, n + 1, (int)(line.n < 60 ? line.n : 60), line.p);
        }
        last_s = b.open_s;
        if (b.shuffle > SMALLEST) {
            byte_s += put_file(&b, arena, j);
            files++;
        }
    }
    ru_json_close(j);
    if (files == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: no job shuffles more than 1 MB", path);
    }
    double quota = byte_s / fmax(last_s, 1) / 10;
    ru_json_i64(j, "quota", (int64_t)fmin(fmax(quota, 1e6), 1e18));
    ru_json_f64(j, "from_s", floor(last_s / 2));
    ru_json_str(j, "readers", "hidden");
    return RU_OK;
}

const ru_natural rui_natural_storage_trace = {
    .policy = "storage",
    .what = "trace of jobs: lines 'NAME<tab>SUBMIT_S<tab>GAP_S<tab>INPUT<tab>SHUFFLE<tab>OUTPUT"
            "[<tab>PATH]', plain or .tsv.gz; files of the second half are placed on a tenth "
            "of the mean bytes that live, or on --set quota=",
    .is = is_trace,
    .read = read_trace,
};
