/* Which format is this? By content first, by name where content cannot tell.
 *
 * Thread: any. */
#ifndef RU_DATA_DETECT_H
#define RU_DATA_DETECT_H

#include "data/reader.h"

RU_API_BEGIN

/* Fill out->format and out->paths (in `arena`) for what `paths` name: files, or one folder (of
 * class folders, or with train-images/train-labels, train.csv, train.u8, shards, ...; `part` says
 * train or test). Other options are untouched. Errors: RU_E_MISSING, RU_E_DATA when nothing fits.
 */
RU_MUST_USE ru_status ru_data_detect(const char *const *paths, uint32_t n_paths, const char *part,
                                     ru_arena *arena, ru_data_options *out, ru_err *err);

RU_API_END

#endif
