/* Every data format: any bytes open and read, or give an error; never a crash. The first byte
 * chooses the format and its options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/detect.h"
#include "data/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READ_MAX = 4, SAMPLE_MAX = 1 << 22 };

static void read_some(const ru_dataset *d)
{
    const ru_field *f;
    uint32_t n = ru_dataset_fields(d, &f);
    void *fields[RU_FIELDS_MAX] = {0};
    bool small = true;
    for (uint32_t k = 0; k < n; k++) {
        small = small && ru_type_bytes(&f[k].type) <= SAMPLE_MAX;
    }
    for (uint32_t k = 0; small && k < n; k++) {
        fields[k] = malloc((size_t)ru_type_bytes(&f[k].type));
        small = fields[k] != NULL;
    }
    int64_t count = ru_dataset_count(d);
    for (int64_t i = 0; small && i < count && i < READ_MAX; i++) {
        ru_err err;
        (void)!(ru_dataset_read(d, count - 1 - i, fields, &err) == RU_OK);
    }
    for (uint32_t k = 0; k < n; k++) {
        free(fields[k]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"csv",    "libsvm", "idx",      "cifar", "npy",
                                          "tokens", "tar",    "tfrecord", "packed"};
    if (size < 1) {
        return 0;
    }
    char path[64];
    uint32_t pick = data[0];
    snprintf(path, sizeof path, "/tmp/rubato-fuzz-%ld%s", (long)getpid(), pick & 128 ? ".gz" : "");
    ru_err err;
    FILE *f = fopen(path, "wb"); /* no fsync: a hundred times as many tries */
    if (f == NULL || fwrite(data + 1, 1, size - 1, f) != size - 1 || fclose(f) != 0) {
        abort();
    }
    const char *paths[] = {path};
    ru_data_options opt = {.format = formats[pick % RU_ARRAY_LEN(formats)],
                           .paths = paths,
                           .n_paths = 1,
                           .context = 1 + pick % 7,
                           .image_size = pick & 64 ? 8 : 0,
                           .skip_damaged = pick & 32 ? true : false};
    ru_dataset *d = NULL;
    if (ru_dataset_open(&opt, &d, &err) == RU_OK) {
        read_some(d);
        ru_dataset_close(d);
    }
    ru_arena arena;
    ru_arena_init(&arena, 1 << 20);
    (void)!(ru_data_detect(paths, 1, "train", &arena, &opt, &err) == RU_OK);
    ru_arena_fini(&arena);
    (void)unlink(path);
    return 0;
}
