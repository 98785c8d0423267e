#include "train/remote/remote.h"

#include <string.h>

#include "base/map.h"
#include "base/wire.h"
#include "run/ckpt_store.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the description of weights");
}

static void hash_type(ru_hasher *h, const ru_remote_tensor *t)
{
    ru_hasher_put_str(h, t->name);
    ru_hasher_put_u64(h, (uint64_t)t->type.dtype);
    ru_hasher_put_u64(h, t->type.rank);
    for (uint32_t d = 0; d < t->type.rank; d++) {
        ru_hasher_put_u64(h, (uint64_t)t->type.dims[d]);
    }
    ru_hasher_put_u64(h, t->hash);
}

static void hash_all(ru_remote *w)
{
    ru_hasher h;
    ru_hasher_init(&h);
    for (uint32_t i = 0; i < w->n; i++) {
        hash_type(&h, &w->at[i]);
    }
    w->hash = ru_hasher_get(&h);
}

/* The file is sent whole, before any tensor. */
ru_status ru_remote_onnx(const ru_rundir *r, ru_remote *w, ru_err *err)
{
    const char *folder = "/model/model.onnx";
    size_t n = strlen(r->onnx), tail = strlen(folder);
    if (n >= tail && strcmp(r->onnx + n - tail, folder) == 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "%s was trained from an imported model that keeps weights in other files, "
                       "which is not served; `rubato export %s --onnx FILE` writes it as one",
                       r->dir, r->dir);
    }
    RU_TRY(ru_file_map(r->onnx, &w->onnx_map, err));
    if (w->onnx_map.size_bytes > RU_REMOTE_MODEL_MAX) {
        int64_t size = w->onnx_map.size_bytes;
        ru_file_unmap(&w->onnx_map);
        return RU_FAIL(err, RU_E_LIMIT, "%s has %lld MiB; an imported model is served up to %d MiB",
                       r->onnx, (long long)(size >> 20), RU_REMOTE_MODEL_MAX >> 20);
    }
    w->onnx = w->onnx_map.data;
    w->onnx_bytes = w->onnx_map.size_bytes;
    return RU_OK;
}

static ru_status open_tensors(const ru_rundir *r, ru_arena *arena, ru_remote *w, ru_err *err)
{
    ru_safetensors file;
    RU_TRY(ru_ckpt_tensors(r->ckpt.dir, "model.safetensors", arena, &w->map, &file, err));
    ru_remote_tensor *at = RU_NEW(arena, ru_remote_tensor, file.tensors.n);
    if (at == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < file.tensors.n; i++) {
        const ru_array *a = &file.tensors.at[i];
        at[i] = (ru_remote_tensor){.name = a->name,
                                   .type = a->type,
                                   .data = a->data,
                                   .hash = ru_hash_bytes(a->data, ru_type_bytes(&a->type), 0)};
    }
    w->at = at;
    w->n = file.tensors.n;
    hash_all(w);
    return RU_OK;
}

ru_status ru_remote_open(const ru_rundir *r, ru_arena *arena, ru_remote *out, ru_err *err)
{
    char *state;
    ru_remote w = {0};
    RU_TRY(ru_ckpt_state(r->ckpt.dir, arena, &state, &w.state_bytes, err));
    w.state = state;
    ru_status st = r->onnx != NULL ? ru_remote_onnx(r, &w, err) : RU_OK;
    st = st == RU_OK ? open_tensors(r, arena, &w, err) : st;
    if (st != RU_OK) {
        ru_remote_close(&w);
        return st;
    }
    *out = w;
    return RU_OK;
}

void ru_remote_close(ru_remote *w)
{
    ru_file_unmap(&w->map);
    ru_file_unmap(&w->onnx_map);
    *w = (ru_remote){0};
}

/* -- on the wire ---------------------------------------------------------------------------------
 */

ru_status ru_remote_pack(const ru_remote *w, ru_arena *arena, ru_span *out, ru_err *err)
{
    int64_t size = 8 + w->state_bytes + 8 + w->onnx_bytes;
    for (uint32_t i = 0; i < w->n; i++) {
        size += 4 + (int64_t)strlen(w->at[i].name) + 2 + 8 * (int64_t)w->at[i].type.rank + 8;
    }
    void *buf = ru_arena_alloc(arena, size, 8);
    if (buf == NULL || w->state_bytes > UINT32_MAX) {
        return full(err);
    }
    ru_wire_out o = ru_wire_out_into(buf, size);
    ru_wire_put_text(&o, w->state, (uint32_t)w->state_bytes);
    ru_wire_put_u64(&o, (uint64_t)w->onnx_bytes);
    ru_wire_put_bytes(&o, w->onnx, w->onnx_bytes);
    ru_wire_put_u32(&o, w->n);
    for (uint32_t i = 0; i < w->n; i++) {
        const ru_remote_tensor *t = &w->at[i];
        ru_wire_put_text(&o, t->name, (uint32_t)strlen(t->name));
        ru_wire_put_u8(&o, (uint8_t)t->type.dtype);
        ru_wire_put_u8(&o, (uint8_t)t->type.rank);
        for (uint32_t d = 0; d < t->type.rank; d++) {
            ru_wire_put_u64(&o, (uint64_t)t->type.dims[d]);
        }
        ru_wire_put_u64(&o, t->hash);
    }
    RU_CHECK(!o.bad && ru_wire_size(&o) == size);
    *out = (ru_span){buf, size};
    return RU_OK;
}

static bool parse_type(ru_wire_in *in, ru_type *out)
{
    int64_t dims[RU_RANK_MAX], bytes = 1;
    uint8_t dtype = ru_wire_u8(in), rank = ru_wire_u8(in);
    if (dtype == RU_NONE || dtype >= RU_DTYPE_COUNT || rank > RU_RANK_MAX) {
        return false;
    }
    for (uint32_t d = 0; d < rank; d++) {
        uint64_t dim = ru_wire_u64(in);
        if (dim == 0 || dim > INT64_C(1) << 40 || (int64_t)dim > (INT64_C(1) << 44) / bytes) {
            return false;
        }
        dims[d] = (int64_t)dim;
        bytes *= dims[d];
    }
    *out = ru_type_make((ru_dtype)dtype, rank, dims);
    return !in->bad;
}

/* One tensor; NULL: fine. Names become keys of `seen`. */
static const char *parse_tensor(ru_wire_in *in, ru_arena *arena, ru_map *seen, ru_remote_tensor *t)
{
    enum { NAME_MAX_BYTES = 1000 };
    uint32_t n = 0;
    bool fresh = false;
    const char *name = ru_wire_text(in, NAME_MAX_BYTES, &n);
    if (name == NULL || n == 0 || memchr(name, 0, n) != NULL || !parse_type(in, &t->type)) {
        return "a tensor's name or type is none";
    }
    t->hash = ru_wire_u64(in);
    t->name = ru_arena_strn(arena, name, n);
    if (in->bad || t->name == NULL || ru_map_put_c(seen, t->name, &fresh) == NULL) {
        return "it is cut off";
    }
    return fresh ? NULL : "a tensor's name stands in it twice";
}

ru_status ru_remote_parse(const char *who, const void *data, int64_t size_bytes, ru_arena *arena,
                          ru_remote *out, ru_err *err)
{
    ru_remote w = {0};
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    uint32_t n_state = 0;
    ru_map seen;
    w.state = ru_wire_text(&in, UINT32_MAX, &n_state);
    uint64_t onnx_bytes = ru_wire_u64(&in);
    if (onnx_bytes > 0 && onnx_bytes <= (uint64_t)ru_wire_left(&in)) {
        w.onnx_bytes = (int64_t)onnx_bytes;
        w.onnx = ru_wire_bytes(&in, w.onnx_bytes);
    }
    w.n = onnx_bytes == (uint64_t)w.onnx_bytes ? ru_wire_u32(&in) : 0;
    const char *why =
        in.bad || w.n == 0 || w.n > RU_REMOTE_TENSORS_MAX ? "it has no list of tensors" : NULL;
    ru_remote_tensor *at = RU_NEW(arena, ru_remote_tensor, why == NULL ? w.n : 1);
    if (at == NULL) {
        return full(err);
    }
    ru_map_init(&seen, arena, RU_REMOTE_TENSORS_MAX);
    for (uint32_t i = 0; why == NULL && i < w.n; i++) {
        why = parse_tensor(&in, arena, &seen, &at[i]);
    }
    why = why == NULL && ru_wire_left(&in) > 0 ? "bytes stand behind its end" : why;
    if (why != NULL) {
        return RU_FAIL(err, RU_E_DATA, "the description of the weights from %s is damaged: %s", who,
                       why);
    }
    w.state_bytes = n_state;
    w.at = at;
    hash_all(&w);
    *out = w;
    return RU_OK;
}
