/* Augmentation: random changes of training samples, drawn by counter.
 *
 * What happens to a sample is a function of (seed, epoch, number of the sample): a resumed run, and
 * every number of workers and reading threads, gives the same bytes. The words of sample i in epoch
 * e are blocks 4i .. 4i+3 of Philox under the seed, stream "augm" * 2^32 + e; each change has words
 * of its own, so that turning one off leaves the others as they are.
 *
 *     stored --> crop, flip --> rotation --> brightness, contrast, saturation --> (x - mean) / std
 *            --> cutout --> mixup
 *
 * Thread: rui_augment is read-only after open; every reading thread has its own rui_augmenter. */
#ifndef RU_DATA_AUGMENT_H
#define RU_DATA_AUGMENT_H

#include "data/data_impl.h"

typedef struct rui_augmenter {
    const ru_dataset *d;
    ru_augment how;
    uint64_t seed;
    float *scratch;             /* [x] */
    void *spare[RU_FIELDS_MAX]; /* a sample: the partner of a batch's first */
    int64_t channels, height, width, n_x;
    int32_t y; /* field of the labels that mixup mixes; -1: none */
} rui_augmenter;

/* Is anything asked for? */
bool rui_augments(const ru_augment *a);

/* Errors: RU_E_CONFIG where the samples are no images, or the labels cannot be mixed. `out` is
 * zeroed memory; the caller frees it with fini on success and failure. */
RU_MUST_USE ru_status rui_augmenter_init(rui_augmenter *out, const ru_dataset *d,
                                         const ru_augment *how, uint64_t seed, ru_err *err);
void rui_augmenter_fini(rui_augmenter *a);

/* Sample `index` as it looks in `epoch`, without mixup. */
RU_MUST_USE ru_status rui_augment_read(const rui_augmenter *a, int64_t epoch, int64_t index,
                                       void *const *fields, ru_err *err);

/* fields = m * fields + (1 - m) * partner, m drawn for sample `index` in `epoch`. */
void rui_augment_mix(const rui_augmenter *a, int64_t epoch, int64_t index, void *const *fields,
                     void *const *partner);

#endif
