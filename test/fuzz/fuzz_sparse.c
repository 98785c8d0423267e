/* Sparse formats: any bytes open or give an error, and what opens keeps its promises. The first
 * byte chooses the format and its options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "data/format/sparse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const ru_sparse_file *f)
{
    ru_sparse all;
    ru_sparse_part(f, 0, ru_sparse_rows(f), &all);
    for (int64_t r = 0; r < all.rows; r++) {
        for (int64_t i = all.begin[r]; i < all.begin[r + 1]; i++) {
            bool sorted = all.col == NULL || i == all.begin[r] || all.col[i - 1] <= all.col[i];
            RU_CHECK(sorted && isfinite(all.value[i]));
            RU_CHECK(all.col == NULL || all.col[i] < all.cols);
        }
    }
    int64_t first[4];
    uint32_t parts = all.rows < 3 ? (uint32_t)all.rows : 3;
    ru_sparse_cut(f, parts, first);
    for (uint32_t p = 0; p < parts; p++) {
        RU_CHECK(first[p] < first[p + 1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"libsvm", "ratings", "bow", "text", "csv", "idx"};
    if (size < 1) {
        return 0;
    }
    char path[64];
    uint32_t pick = data[0];
    snprintf(path, sizeof path, "/tmp/rubato-fuzz-sparse-%ld", (long)getpid());
    ru_err err;
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data + 1, 1, size - 1, file) != size - 1 || fclose(file) != 0) {
        abort();
    }
    const char *paths[] = {path, path};
    ru_sparse_options opt = {.format = formats[pick % RU_ARRAY_LEN(formats)],
                             .paths = paths,
                             .n_paths = 1 + (pick >> 6 & 1),
                             .cols = pick & 32 ? 100 : 0,
                             .labels = (pick & 128) != 0};
    ru_sparse_file *f = NULL;
    if (ru_sparse_open(&opt, &f, &err) == RU_OK) {
        check(f);
        ru_sparse_close(f);
    }
    return 0;
}
