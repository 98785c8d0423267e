/* Files of other programs that people give by mistake, told by their first bytes.
 *
 * Thread: any, no shared state. */
#ifndef RU_STORE_FOREIGN_H
#define RU_STORE_FOREIGN_H

#include "base/status.h"

/* Refuse a file whose content is plainly of another kind: what it is and how to get `wanted` ("an
 * ONNX model", "safetensors") from it. RU_OK for everything that is not recognised; its reader
 * says what is wrong then. Errors: RU_E_DATA. */
RU_MUST_USE ru_status ru_foreign_refuse(const char *path, const void *data, int64_t size_bytes,
                                        const char *wanted, ru_err *err);

#endif
