/* Reading a job file: sources in order, then paths made absolute. */
#include <stdlib.h>
#include <string.h>

#include "data/reader.h"
#include "env/file/file.h"
#include "train/job/job.h"
#include "train/job/job_impl.h"

enum { JOB_BYTES_MAX = 4 << 20 };

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the job is full");
}

static const char *dir_of(ru_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? "." : slash == path ? "/" : ru_arena_strn(arena, path, slash - path);
}

const char *rui_job_path(ru_arena *arena, const char *job, const char *path)
{
    if (ru_data_is_address(path)) {
        return path;
    }
    const char *dir = path[0] == '/' ? "/" : dir_of(arena, job);
    const char *joined = path[0] == '/' || dir == NULL ? path : ru_path_join(arena, dir, path);
    if (dir == NULL || joined == NULL) {
        return NULL;
    }
    char *real = realpath(joined, NULL);
    const char *out = ru_arena_str(arena, real != NULL ? real : joined);
    free(real);
    return out;
}

ru_status rui_job_paths(ru_arena *arena, const char *job, ru_conf_texts *t, ru_err *err)
{
    const char **at = RU_NEW(arena, const char *, t->n);
    if (at == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < t->n; k++) {
        at[k] = rui_job_path(arena, job, t->at[k]);
        if (at[k] == NULL) {
            return full(err);
        }
    }
    t->at = at;
    return RU_OK;
}

static ru_status tier_paths(ru_arena *arena, const char *path, ru_job *job, ru_err *err)
{
    ru_disk_tier *at = RU_NEW(arena, ru_disk_tier, job->storage.n);
    for (uint32_t k = 0; at != NULL && k < job->storage.n; k++) {
        at[k] = job->storage.at[k];
        at[k].path = rui_job_path(arena, path, at[k].path);
        if (at[k].path == NULL) {
            return full(err);
        }
    }
    job->storage.at = at;
    return at != NULL ? RU_OK : full(err);
}

/* A file that is no text is not read as one: say so instead of naming an octet. */
static ru_status check_text(const char *path, const char *text, int64_t n, ru_err *err)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' && c != '\n' && c != '\r' && c != '\t') {
            return RU_FAIL(
                err, RU_E_CONFIG,
                "%s is not a job file: expected YAML or JSON text, but byte %lld is 0x%02x", path,
                (long long)i, c);
        }
    }
    return RU_OK;
}

ru_status rui_job_text(const char *path, ru_arena *arena, char **text, int64_t *n, ru_err *err)
{
    ru_status st = ru_file_read(path, JOB_BYTES_MAX, arena, text, n, err);
    if (st == RU_E_LIMIT) {
        return RU_FAIL(err, RU_E_CONFIG, "%s is not a job file: it is larger than %d MiB", path,
                       JOB_BYTES_MAX >> 20);
    }
    RU_TRY(st);
    return check_text(path, *text, *n, err);
}

ru_status ru_job_storage_load(ru_arena *arena, const ru_disk_tier **out, uint32_t *n_out,
                              ru_err *err)
{
    const char *path = ru_conf_env("RUBATO_STORAGE");
    *n_out = 0;
    if (path == NULL || path[0] == '\0') {
        return RU_OK;
    }
    char *file;
    int64_t n;
    ru_conf *own;
    rui_job_storage tiers;
    ru_status st = rui_job_text(path, arena, &file, &n, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "RUBATO_STORAGE");
    }
    RU_TRY(ru_conf_new(&rui_job_storage_table, arena, &own, err));
    RU_TRY(ru_conf_add_file(own, path, file, n, err));
    RU_TRY(ru_conf_apply(own, &tiers, err));
    char *real = realpath(path, NULL); /* its folders may be missing yet: they get whole paths */
    const char *base = ru_arena_str(arena, real != NULL ? real : path);
    free(real);
    ru_disk_tier *at = RU_NEW(arena, ru_disk_tier, tiers.at.n);
    for (uint32_t k = 0; at != NULL && k < tiers.at.n; k++) {
        at[k] = tiers.at.at[k];
        at[k].path = base != NULL ? rui_job_path(arena, base, at[k].path) : NULL;
        if (at[k].path == NULL) {
            return full(err);
        }
    }
    *out = at;
    *n_out = tiers.at.n;
    return at != NULL ? RU_OK : full(err);
}

/* RUBATO_STORAGE, below what the job itself says. */
static ru_status add_storage(ru_conf *c, ru_arena *arena, ru_err *err)
{
    uint32_t n;
    const ru_disk_tier *at;
    ru_text text = ru_text_arena(arena);
    RU_TRY(ru_job_storage_load(arena, &at, &n, err));
    if (n == 0) {
        return RU_OK;
    }
    ru_text_put(&text, "{\"storage\":[");
    for (uint32_t k = 0; k < n; k++) {
        ru_text_put(&text, k > 0 ? ",{\"path\":" : "{\"path\":");
        ru_text_json(&text, ru_str_c(at[k].path));
        ru_text_putf(&text, ",\"quota\":\"%lldB\"}", (long long)at[k].quota_bytes);
    }
    ru_text_put(&text, "]}");
    return text.cut ? full(err)
                    : ru_conf_add_json(c, ru_conf_env("RUBATO_STORAGE"), text.p, text.n, err);
}

ru_status ru_job_load(const char *path, const char *const *sets, uint32_t n_sets, ru_arena *arena,
                      ru_job *out, ru_conf **conf, ru_err *err)
{
    char *text;
    int64_t n;
    ru_conf *c;
    ru_job job;
    RU_TRY(rui_job_text(path, arena, &text, &n, err));
    RU_TRY(ru_conf_new(&ru_job_table, arena, &c, err));
    RU_TRY(add_storage(c, arena, err));
    RU_TRY(ru_conf_add_file(c, path, text, n, err));
    RU_TRY(ru_conf_add_env(c, err));
    for (uint32_t k = 0; k < n_sets; k++) {
        RU_TRY(ru_conf_add_set(c, sets[k], err));
    }
    RU_TRY(ru_conf_apply(c, &job, err));
    RU_TRY(rui_job_paths(arena, path, &job.data.train, err));
    RU_TRY(rui_job_paths(arena, path, &job.data.test, err));
    RU_TRY(tier_paths(arena, path, &job, err));
    if (job.model.source == RU_MODEL_ONNX) {
        job.model.onnx = rui_job_path(arena, path, job.model.onnx);
        if (job.model.onnx == NULL) {
            return full(err);
        }
    }
    if (job.data.token_file[0] != 0) {
        job.data.token_file = rui_job_path(arena, path, job.data.token_file);
        if (job.data.token_file == NULL) {
            return full(err);
        }
    }
    ru_job_pipeline *pipeline = &job.train.pipeline;
    if (pipeline->facts[0] != 0) {
        pipeline->facts = rui_job_path(arena, path, pipeline->facts);
        if (pipeline->facts == NULL) {
            return full(err);
        }
    }
    if (job.model.weights[0] != 0) {
        job.model.weights = rui_job_path(arena, path, job.model.weights);
        if (job.model.weights == NULL) {
            return full(err);
        }
    }
    if (job.train.epochs == 0 && job.train.steps == 0 && job.train.until.n == 0 &&
        job.data.follow_ns == 0) {
        job.train.epochs = 1;
    }
    *out = job;
    if (conf != NULL) {
        *conf = c;
    }
    return RU_OK;
}

typedef struct data_file {
    ru_job_data data;
} data_file;

ru_status ru_job_data_load(const char *path, ru_arena *arena, ru_job_data *out, ru_err *err)
{
    static const ru_conf_field fields[] = {
        RU_ROW(SECTION, data_file, data, NULL, "samples of a client", .table = &rui_job_data_table),
    };
    static const ru_conf_table table = RU_TABLE("data_file", data_file, fields, "data of a client");
    char *text;
    int64_t n;
    ru_conf *c;
    data_file file;
    RU_TRY(rui_job_text(path, arena, &text, &n, err));
    RU_TRY(ru_conf_new(&table, arena, &c, err));
    RU_TRY(ru_conf_add_file(c, path, text, n, err));
    RU_TRY(ru_conf_apply(c, &file, err));
    RU_TRY(rui_job_paths(arena, path, &file.data.train, err));
    RU_TRY(rui_job_paths(arena, path, &file.data.test, err));
    if (file.data.token_file[0] != 0) {
        file.data.token_file = rui_job_path(arena, path, file.data.token_file);
    }
    *out = file.data;
    return file.data.token_file != NULL ? RU_OK : full(err);
}

ru_status ru_job_parse(const char *label, const char *yaml, ru_arena *arena, ru_job *out,
                       ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(&ru_job_table, arena, &c, err));
    RU_TRY(ru_conf_add_yaml(c, label, yaml, (int64_t)strlen(yaml), err));
    return ru_conf_apply(c, out, err);
}

void ru_job_dump(const ru_job *job, const ru_conf *conf, ru_text *out)
{
    ru_conf_dump(&ru_job_table, job, conf, out);
}
