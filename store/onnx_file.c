#include "store/onnx_file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "store/foreign.h"

/* The absolute folder of `path`, links resolved, to be freed. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir =
        slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    char *real = dir != NULL ? realpath(dir, NULL) : NULL;
    free(dir);
    return real;
}

ru_status ru_onnx_file_open(const char *path, ru_onnx_file *out, ru_err *err)
{
    ru_onnx_file f = {0};
    RU_TRY(ru_file_map(path, &f.model, err));
    ru_status st = ru_foreign_refuse(path, f.model.data, f.model.size_bytes, "an ONNX model", err);
    if (st != RU_OK) {
        ru_file_unmap(&f.model);
        return st;
    }
    f.folder = folder_of(path);
    if (f.folder == NULL) {
        ru_file_unmap(&f.model);
        return RU_FAIL(err, RU_E_IO, "%s: its folder cannot be resolved: %s", path,
                       strerror(errno));
    }
    *out = f;
    return RU_OK;
}

void ru_onnx_file_close(ru_onnx_file *f)
{
    for (uint32_t k = 0; k < f->n_parts; k++) {
        ru_file_unmap(&f->parts[k].map);
        free(f->parts[k].location);
    }
    ru_file_unmap(&f->model);
    free(f->folder);
    *f = (ru_onnx_file){0};
}

/* Refuse what could leave the folder before touching the disk. */
static bool location_is_plain(const char *location)
{
    if (location[0] == 0 || location[0] == '/' || strchr(location, '\\') != NULL) {
        return false;
    }
    for (const char *part = location; part != NULL;) {
        const char *slash = strchr(part, '/');
        size_t n = slash != NULL ? (size_t)(slash - part) : strlen(part);
        if (n == 2 && part[0] == '.' && part[1] == '.') {
            return false;
        }
        part = slash != NULL ? slash + 1 : NULL;
    }
    return true;
}

static ru_status part_open(ru_onnx_file *f, const char *location, ru_map_file *out, ru_err *err)
{
    size_t n = strlen(f->folder);
    if (!location_is_plain(location) || n + strlen(location) + 2 > PATH_MAX) {
        return RU_FAIL(err, RU_E_DATA,
                       "file '%s' lies outside the model's folder and is not opened", location);
    }
    char path[PATH_MAX];
    memcpy(path, f->folder, n);
    path[n] = '/';
    memcpy(path + n + 1, location, strlen(location) + 1);
    char *real = realpath(path, NULL);
    if (real == NULL) {
        return RU_FAIL(err, errno == ENOENT ? RU_E_MISSING : RU_E_IO, "%s: %s", path,
                       strerror(errno));
    }
    bool within = strncmp(real, f->folder, n) == 0 && (n == 1 || real[n] == '/');
    ru_status st =
        within
            ? ru_file_map(real, out, err)
            : RU_FAIL(err, RU_E_DATA,
                      "file '%s' is a link out of the model's folder and is not opened", location);
    free(real);
    return st;
}

static ru_status part_find(ru_onnx_file *f, const char *location, ru_map_file *out, ru_err *err)
{
    for (uint32_t k = 0; k < f->n_parts; k++) {
        if (strcmp(f->parts[k].location, location) == 0) {
            *out = f->parts[k].map;
            return RU_OK;
        }
    }
    if (f->n_parts == RU_ONNX_PARTS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "weights in more than %d files", RU_ONNX_PARTS_MAX);
    }
    char *copy = strdup(location);
    if (copy == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory");
    }
    ru_status st = part_open(f, location, out, err);
    if (st != RU_OK) {
        free(copy);
        return st;
    }
    f->parts[f->n_parts].location = copy;
    f->parts[f->n_parts++].map = *out;
    return RU_OK;
}

static ru_status part_view(void *self, const char *location, int64_t offset, int64_t length,
                           const void **data, int64_t *size_bytes, ru_err *err)
{
    ru_map_file m;
    RU_TRY(part_find(self, location, &m, err));
    if (offset < 0 || offset > m.size_bytes || length > m.size_bytes - offset) {
        return RU_FAIL(
            err, RU_E_DATA,
            "file '%s' has %lld bytes, but the model expects %lld bytes of weights at offset %lld",
            location, (long long)m.size_bytes, (long long)length, (long long)offset);
    }
    *data = m.data + offset;
    *size_bytes = length < 0 ? m.size_bytes - offset : length;
    return RU_OK;
}

ru_onnx_external ru_onnx_file_external(ru_onnx_file *f)
{
    return (ru_onnx_external){.name = "file", .view = part_view, .self = f};
}

/* -- writing ----------------------------------------------------------------------------------- */

enum {
    OUTSIDE_BYTES_MIN =
        1024, /* what decides shapes stays inside, where other readers look for it */
    OUTSIDE_ALIGN = 64,
};

typedef struct data_file {
    ru_out *out;
    int64_t size_bytes;
} data_file;

static ru_status data_put(void *self, const void *data, int64_t size_bytes, int64_t *offset,
                          ru_err *err)
{
    static const char zeros[OUTSIDE_ALIGN];
    data_file *d = self;
    int64_t gap = (OUTSIDE_ALIGN - d->size_bytes % OUTSIDE_ALIGN) % OUTSIDE_ALIGN;
    RU_TRY(ru_out_write(d->out, zeros, gap, err));
    *offset = d->size_bytes + gap;
    RU_TRY(ru_out_write(d->out, data, size_bytes, err));
    d->size_bytes += gap + size_bytes;
    return RU_OK;
}

/* `data`: the weights' file, finished before the model that names it appears; NULL: none. */
static ru_status save(const char *path, const ru_graph *g, const ru_onnx_write_options *opt,
                      ru_out *data, ru_err *err)
{
    ru_pb_out out;
    ru_arena scratch;
    ru_pb_out_init(&out);
    ru_arena_init(&scratch, 0);
    ru_status st = ru_onnx_write(g, opt, &scratch, &out, err);
    st = st == RU_OK && data != NULL ? ru_out_commit(data, err) : st;
    st = st == RU_OK ? ru_file_replace(path, out.data, out.size_bytes, err) : st;
    ru_pb_out_fini(&out);
    ru_arena_fini(&scratch);
    return st;
}

static ru_status save_outside(const char *path, const ru_graph *g, const ru_onnx_write_options *opt,
                              ru_err *err)
{
    char data_path[PATH_MAX];
    data_file d = {0};
    if (strlen(path) + sizeof ".data" > sizeof data_path) {
        return RU_FAIL(err, RU_E_CREATE, "%s: the path is too long", path);
    }
    memcpy(data_path, path, strlen(path));
    memcpy(data_path + strlen(path), ".data", sizeof ".data");
    const char *slash = strrchr(data_path, '/');
    const ru_onnx_sink sink = {.location = slash != NULL ? slash + 1 : data_path,
                               .bytes_min = OUTSIDE_BYTES_MIN,
                               .put = data_put,
                               .self = &d};
    ru_onnx_write_options with = *opt;
    with.outside = &sink;
    if (ru_path_exists(path) && !ru_path_is_file(path)) {
        return RU_FAIL(err, RU_E_CREATE,
                       "%s is not a regular file, but the weights of this model need a file beside "
                       "it; name a regular file",
                       path);
    }
    RU_TRY(ru_out_open(data_path, &d.out, err));
    ru_status st = save(path, g, &with, d.out, err);
    ru_out_close(d.out);
    return st;
}

/* Bytes of all weights, used or not. */
static int64_t weights_bytes(const ru_graph *g)
{
    int64_t sum = 0;
    for (uint32_t k = 1; k < g->n_values; k++) {
        const ru_value *v = &g->values[k];
        bool weight = v->kind == RU_VALUE_CONST || v->kind == RU_VALUE_STATE;
        sum += weight ? ru_type_bytes(&v->type) : 0;
    }
    return sum;
}

ru_status ru_onnx_file_save(const char *path, const ru_graph *g, const ru_onnx_write_options *opt,
                            bool *external, ru_err *err)
{
    static const ru_onnx_write_options none = {0};
    opt = opt != NULL ? opt : &none;
    bool outside = opt->external || weights_bytes(g) > RU_ONNX_INSIDE_BYTES_MAX;
    RU_TRY(outside ? save_outside(path, g, opt, err) : save(path, g, opt, NULL, err));
    if (external != NULL) {
        *external = outside;
    }
    return RU_OK;
}
