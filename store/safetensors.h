/* safetensors: named tensors in one file.
 *
 *   u64 LE header length N | N bytes of JSON, padded with spaces | data
 *
 * A file is hostile until every number is checked: header at most 100 MB, valid JSON without
 * repeated keys, known dtypes, offsets that cover the data exactly once, without overlap or hole.
 * What we write starts its data at a multiple of 64 bytes, largest element types first, so that
 * every tensor is aligned and a map of the file can be used as it is.
 *
 * Thread: any, no shared state.
 * Source: github.com/huggingface/safetensors, README (format) */
#ifndef RU_STORE_SAFETENSORS_H
#define RU_STORE_SAFETENSORS_H

#include "env/file/file.h"
#include "world/array.h"

RU_API_BEGIN

typedef struct ru_meta {
    const char *key, *value;
} ru_meta;

typedef struct ru_safetensors {
    ru_arrays tensors; /* in the order of the header; data is a view of the bytes when aligned */
    ru_meta *meta;     /* [n_meta] */
    uint32_t n_meta;
} ru_safetensors;

/* Map `path` and parse it; the tensors are views of the map: unmap it after their last use. */
RU_MUST_USE ru_status ru_safetensors_open(const char *path, ru_arena *arena, ru_map_file *map,
                                          ru_safetensors *out, ru_err *err);

/* Replace `path` by these tensors, atomically. Names must differ.
 * Errors: RU_E_ARG (names), RU_E_CREATE, RU_E_IO. */
RU_MUST_USE ru_status ru_safetensors_save(const char *path, const ru_array *tensors, uint32_t n,
                                          const ru_meta *meta, uint32_t n_meta, ru_err *err);

const char *ru_meta_find(const ru_meta *meta, uint32_t n, const char *key); /* NULL: none */

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Errors: RU_E_DATA, RU_E_UNSUPPORTED for element types we do not have, RU_E_LIMIT (arena). */
RU_MUST_USE ru_status ru_safetensors_parse(const void *data, int64_t size_bytes, ru_arena *arena,
                                           ru_safetensors *out, ru_err *err);
/* The same into a file that is being written, at its start. */
RU_MUST_USE ru_status ru_safetensors_write(ru_out *file, const ru_array *tensors, uint32_t n,
                                           const ru_meta *meta, uint32_t n_meta, ru_err *err);
/* The bytes of such a file, in order, to whoever takes them. Errors: those of `take`, RU_E_MEM,
 * RU_E_UNSUPPORTED (names). */
RU_MUST_USE ru_status ru_safetensors_put(ru_status (*take)(void *self, const void *data,
                                                           int64_t size_bytes, ru_err *err),
                                         void *self, const ru_array *tensors, uint32_t n,
                                         const ru_meta *meta, uint32_t n_meta, ru_err *err);

#endif
