/* Shared by npy.c and npz.c.
 *
 * Thread: any. */
#ifndef RU_STORE_NPY_IMPL_H
#define RU_STORE_NPY_IMPL_H

#include "store/npy.h"

enum { RUI_NPY_HEADER_MAX = 512 };

/* The header of `a` as written, magic included; returns its length, a multiple of 64. */
int64_t rui_npy_header(const ru_array *a, char into[RUI_NPY_HEADER_MAX]);

/* Bytes of the elements as written. */
int64_t rui_npy_bytes(const ru_array *a);

/* ru_npy_parse that takes texts too when `texts` is given. */
RU_MUST_USE ru_status rui_npy_parse(const void *data, int64_t size_bytes, ru_arena *arena,
                                    ru_texts *texts, ru_array *out, ru_err *err);

/* Elements as written: a->data, or a converted copy in `arena` (bf16, texts). NULL: arena full. */
const void *rui_npy_elements(const ru_array *a, ru_arena *arena);

#endif
