/* The members of a tar file, without unpacking: names, places, sizes.
 *
 * Thread: one thread at a time. */
#ifndef RU_DATA_TAR_INDEX_H
#define RU_DATA_TAR_INDEX_H

#include "data/data_impl.h"

enum { RUI_TAR_NAME_MAX = 1024, RUI_TAR_LOOK = 512 };

typedef struct rui_tar_member {
    char name[RUI_TAR_NAME_MAX]; /* NUL-ended */
    int64_t at, size_bytes;      /* of the content */
    uint8_t look[RUI_TAR_LOOK];  /* its first bytes */
} rui_tar_member;

typedef struct rui_tar {
    const rui_source *file;
    int64_t at;                       /* of the next header */
    char long_name[RUI_TAR_NAME_MAX]; /* from a GNU or pax header, for the next member; "" none */
    int64_t long_size;                /* from a pax header; -1 none */
    bool closed;                      /* zero blocks: the archive ends, another one may follow */
} rui_tar;

rui_tar rui_tar_from(const rui_source *file);
/* The next regular file; *found false at the end of the file, in which archives may stand one
 * behind the other. Errors: RU_E_DATA with the offset.
 */
RU_MUST_USE ru_status rui_tar_next(rui_tar *t, rui_tar_member *m, bool *found, ru_err *err);

#endif
