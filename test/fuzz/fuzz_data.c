/* Every data format: any bytes open and read, or give an error; never a crash. The first three
 * bytes choose the format and its options; the rest are also lines of a table on stdin. */
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

/* Columns of a table that names its own: numbers, numbers that are normalised, categories; the
 * label stands between. */
static ru_columns fixed_columns(uint32_t pick)
{
    static const char *const words[] = {"no", "yes"}, *const left_out[] = {"d"};
    static const ru_column at[] = {
        {.name = "a", .place = 0},
        {.name = "b", .place = 1, .mean = 2, .std = 0.5},
        {.name = "c", .place = 3, .categories = {words, RU_ARRAY_LEN(words)}},
    };
    return (ru_columns){.at = at,
                        .n = RU_ARRAY_LEN(at),
                        .named = pick & 256 ? true : false,
                        .width = 5,
                        .label = "y",
                        .label_place = 2,
                        .ignored = {left_out, 1},
                        .normalize = pick & 512 ? true : false,
                        .missing = (pick >> 10) % 3};
}

/* The lines as those of stdin. */
static void read_lines(const ru_columns *c, const uint8_t *data, size_t size)
{
    ru_arena arena;
    ru_err err;
    ru_rows *rows = NULL;
    ru_str rest = ru_str_n((const char *)data, (int64_t)size), line;
    ru_arena_init(&arena, 1 << 20);
    float *x = calloc((size_t)ru_columns_inputs(c), sizeof *x);
    if (x != NULL && ru_rows_open(c, "stdin", &arena, &rows, &err) == RU_OK) {
        bool row;
        while (ru_str_next(&rest, '\n', &line)) {
            (void)!(ru_rows_line(rows, line, x, &row, &err) == RU_OK);
        }
    }
    ru_rows_close(rows);
    free(x);
    ru_arena_fini(&arena);
}

static void open_and_read(const ru_data_options *opt, const uint8_t *data, size_t size)
{
    ru_dataset *d = NULL;
    ru_err err;
    if (ru_dataset_open(opt, &d, &err) == RU_OK) {
        read_some(d);
        const ru_columns *columns = ru_dataset_columns(d);
        if (columns != NULL && columns->n > 0) {
            read_lines(columns, data, size);
        }
        ru_dataset_close(d);
    }
}

/* What a table is opened with. The words are static: the options view them. */
static void pick_table(uint32_t pick, ru_columns_options *prepare, ru_columns *columns,
                       ru_data_options *opt)
{
    static const char *const some[] = {"a", "2"}, *const by_rows[] = {"auto"};
    *prepare = (ru_columns_options){
        .ignore = {some, (pick >> 13) % 2},
        .categorical = {pick & 16384 ? some + 1 : by_rows, 1},
        .missing = (pick >> 10) % 3,
        .normalize = (pick >> 8) % 3,
    };
    *columns = fixed_columns(pick);
    uint32_t way = (pick >> 16) % 3;
    opt->prepare = way == 1 ? prepare : NULL;
    opt->columns = way == 2 ? columns : NULL;
    opt->unlabelled = pick & 1 << 18 ? true : false;
    opt->label = pick & 1 << 19 ? "y" : pick & 1 << 20 ? "1" : NULL;
    opt->header = pick & 1 << 21 ? true : false;
    opt->regression = pick & 1 << 22 ? true : false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"csv",    "libsvm", "idx",      "cifar", "npy",
                                          "tokens", "tar",    "tfrecord", "packed"};
    enum { PICK = 3 };
    if (size < PICK) {
        return 0;
    }
    char path[64];
    uint32_t pick = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16;
    data += PICK;
    size -= PICK;
    snprintf(path, sizeof path, "/tmp/rubato-fuzz-%ld%s", (long)getpid(), pick & 128 ? ".gz" : "");
    ru_err err;
    FILE *f = fopen(path, "wb"); /* no fsync: a hundred times as many tries */
    if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0) {
        abort();
    }
    const char *paths[] = {path};
    ru_data_options opt = {.format = formats[(pick & 255) % RU_ARRAY_LEN(formats)],
                           .paths = paths,
                           .n_paths = 1,
                           .context = 1 + (pick & 255) % 7,
                           .image_size = pick & 64 ? 8 : 0,
                           .skip_damaged = pick & 32 ? true : false};
    ru_columns_options prepare;
    ru_columns columns;
    pick_table(pick, &prepare, &columns, &opt);
    open_and_read(&opt, data, size);
    read_lines(&columns, data, size);
    ru_arena arena;
    ru_arena_init(&arena, 1 << 20);
    (void)!(ru_data_detect(paths, 1, "train", &arena, &opt, &err) == RU_OK);
    ru_arena_fini(&arena);
    (void)unlink(path);
    return 0;
}
