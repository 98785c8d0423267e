/* numpy's files: .npy (one array) and .npz (a zip of them).
 *
 *   \x93NUMPY | version 1.0, 2.0 or 3.0 | header length | {'descr': '<f4', 'fortran_order': False,
 *   'shape': (3, 4), } padded with spaces to a multiple of 64 | elements
 *
 * Reading takes numbers and booleans of either byte order, row- or column-major, and texts ('<U7')
 * where the caller has a table for them (ru_arrays.texts); objects and records are refused (objects
 * would mean running code). npz members may be stored or deflated,
 * zip64 included; every length and checksum is verified. Writing gives version 1.0 and stored
 * members; a member or archive of 4 GiB or more is refused: safetensors is the format for those.
 *
 * bf16 has no numpy name: it is written as f32. Elements of two opaque bytes ('|V2', as ml_dtypes
 * has them written) are read as bf16.
 *
 * Thread: any, no shared state.
 * Source: numpy.lib.format; PKWARE APPNOTE.TXT 4.3 to 4.5 */
#ifndef RU_STORE_NPY_H
#define RU_STORE_NPY_H

#include "env/file/file.h"
#include "world/array.h"

RU_API_BEGIN

/* Map an .npy or .npz file and read it as above. The arrays are views of the map: unmap it after
 * their last use. */
RU_MUST_USE ru_status ru_npz_open(const char *path, ru_arena *arena, ru_map_file *map,
                                  ru_arrays *out, ru_err *err);

/* Replace `path` by one array, or by an archive of named ones, atomically. */
RU_MUST_USE ru_status ru_npy_save(const char *path, const ru_array *a, ru_err *err);
RU_MUST_USE ru_status ru_npz_save(const char *path, const ru_array *arrays, uint32_t n,
                                  ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* One array; `out->name` stays NULL. Elements are a view of `data` when they can be.
 * Errors: RU_E_DATA, RU_E_UNSUPPORTED, RU_E_LIMIT (arena). */
RU_MUST_USE ru_status ru_npy_parse(const void *data, int64_t size_bytes, ru_arena *arena,
                                   ru_array *out, ru_err *err);
/* Of an .npy or .npz file (distinguished by content); a single array gets the name "". */
RU_MUST_USE ru_status ru_npz_read(const void *data, int64_t size_bytes, ru_arena *arena,
                                  ru_arrays *out, ru_err *err);
/* What the first `head_bytes` of such a file of `size_bytes` say: the type, where the elements
 * begin, and whether they stand plainly (row-major, little-endian). */
RU_MUST_USE ru_status ru_npy_look(const void *head, int64_t head_bytes, int64_t size_bytes,
                                  ru_type *type, int64_t *at, bool *plain, ru_err *err);
/* All arrays of an archive, in its order, named without ".npy". Reads out->texts, as the functions
 * below do. */
RU_MUST_USE ru_status ru_npz_parse(const void *data, int64_t size_bytes, ru_arena *arena,
                                   ru_arrays *out, ru_err *err);

#endif
