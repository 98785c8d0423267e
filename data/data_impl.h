/* Inside of data/: the dataset object, the table of one format, bytes of a file.
 *
 * A format opens files, fills the dataset's fields and count, and reads samples by index. It keeps
 * what it needs in the dataset's arena (d->self) and in sources. Reading is re-entrant: after open
 * a format's state is read-only, except what stands behind d->guard.
 *
 * Thread: open and close on one thread, read on many. */
#ifndef RU_DATA_DATA_IMPL_H
#define RU_DATA_DATA_IMPL_H

#include "base/arena.h"
#include "base/str.h"
#include "data/norm.h"
#include "data/reader.h"
#include "env/file/file.h"
#include "env/thread.h"
#include "web/objects.h"

enum {
    RUI_RESIDENT_MAX_BYTES = 64 << 20, /* smaller files are read whole at open: a sample then costs
                                          one copy and no system call, and cutting the file short
                                          during a run cannot hurt (a map would crash) */
    RUI_CLASSES_MAX = 1 << 20,
    RUI_SAMPLE_BYTES_MAX = 1 << 30,
};

struct rui_source;
typedef void (*rui_where_fn)(void *self, const struct rui_source *s, int64_t offset,
                             int64_t size_bytes);

/* One format. Slots may be NULL where said. */
typedef struct rui_format {
    const char *name;
    const char *help;
    /* Open and index: sets fields, count, classes, bytes. Blocks on I/O. On failure, close is
     * called. */
    ru_status (*open)(ru_dataset *d, const ru_data_options *opt, ru_err *err);
    /* Sample `index` (in range) into fields[k]. May block on I/O. */
    ru_status (*read)(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err);
    /* Samples first .. first+n-1 into fields[k] = [n, ...]. NULL: read is called n times. */
    ru_status (*read_run)(const ru_dataset *d, int64_t first, int64_t n, void *const *fields,
                          ru_err *err);
    /* Where the bytes of samples first .. first+n-1 stand in the format's files: fn of each range.
     * NULL: not known before they are read. */
    void (*where)(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self);
    /* The file of sample `index` when it has one of its own. NULL: samples stand in common files.
     */
    const char *(*path)(const ru_dataset *d, int64_t index);
    /* Free what is not in the arena. NULL: nothing. Accepts a half-opened dataset. */
    void (*close)(ru_dataset *d);
} rui_format;

enum { RUI_ORDER_ROUNDS = 8 };

typedef struct rui_order {
    uint32_t keys[RUI_ORDER_ROUNDS];
    uint32_t side; /* the walk happens on side x side >= count */
    int64_t count;
} rui_order;

/* What reading threads change, behind a pointer so that readers hold a const dataset. */
typedef struct rui_guard {
    ru_mutex lock;
    int64_t skipped; /* damaged samples replaced or left out, each once */
    uint8_t *seen;   /* a bit for each sample of the format: it is counted */
    char first[240]; /* what is wrong with the first */
    void *decoders;  /* idle image decoders (image.c) */
} rui_guard;

/* The samples of a dataset among those of its format: sample i is number rui_part_row(part, i). */
typedef struct rui_part {
    bool drawn; /* by a permutation; else they are the first ones */
    rui_order order;
    int64_t first, count;
} rui_part;

struct ru_dataset {
    const rui_format *format;
    void *self;       /* the format's own state, in arena */
    const char *path; /* the first named, in arena; NULL: none */
    uint32_t n_paths;
    ru_arena arena;
    ru_field fields[RU_FIELDS_MAX];
    int64_t field_bytes[RU_FIELDS_MAX]; /* of one sample; filled after open */
    uint32_t n_fields;
    int64_t count;                  /* samples */
    int64_t all;                    /* of the format */
    rui_part part;                  /* which they are */
    const int64_t *kept;            /* [count] which they are of the format's; NULL: see part */
    ru_norm norm;                   /* of x */
    int64_t classes;                /* 0: no classes */
    const char *const *class_names; /* [classes] or NULL */
    uint32_t *class_order;          /* [classes] class numbers in the order of their names, or NULL:
                                       the names are sorted themselves */
    int64_t bytes;                  /* on disk */
    double scale, shift;            /* of u8 pixels, resolved */
    const ru_columns *columns;      /* of a table; NULL: none */
    const char *not_classes; /* the first label that is no class number, with its place; NULL:
                                all are, or numbers were asked for */
    uint32_t pixels;         /* a bit for each field whose pixels rui_pixels_put writes */
    bool as_stored;          /* it writes them as u8 */
    bool raw, one_hot, skip_damaged;
    bool blank_damaged;  /* only with skip_damaged */
    int32_t y_field;     /* index of the field "y" when it holds class numbers; -1: none */
    rui_guard *guard;    /* in arena */
    ru_objects *objects; /* who asks for files behind addresses; NULL: there are none */
    const struct rui_fetch *fetched; /* of the reading thread whose copy this is; NULL: nothing */
    const struct rui_moved *moved;   /* where bytes of the sample at hand stand instead; NULL */
    struct rui_cache *cache;         /* NULL: samples are not kept */
    const struct rui_fetch *held[2]; /* windows of the order in blocks (ahead.h); NULL: none */
};

/* -- helpers of formats (dataset.c) ------------------------------------------------------------ */

/* Append a field; `name` is view (constant or in the arena). */
void rui_field_add(ru_dataset *d, const char *name, ru_dtype dtype, uint32_t rank,
                   const int64_t *dims);
/* Append "y" as class numbers (i64 scalar, or f32 [classes] with one_hot); needs d->classes > 0. */
void rui_field_add_class(ru_dataset *d);
/* Write class `label` in the form of the field added above. */
void rui_class_put(const ru_dataset *d, int64_t label, void *into);
/* Copy the option's class names into d (sorted search index included); leaves d alone when none. */
ru_status rui_class_names_take(ru_dataset *d, const ru_data_options *opt, ru_err *err);
/* Number of the class called `name`, -1: none. */
int64_t rui_class_find(const ru_dataset *d, ru_str name);
/* Count a damaged sample: number `index` of the format, -1: one that has no number, and what is
 * wrong with it. */
void rui_skip_note(const ru_dataset *d, int64_t index, const ru_err *why);
/* The same of all that follows byte `at` of a file, whose samples cannot be found; with a warning.
 */
void rui_rest_note(const ru_dataset *d, const struct rui_source *f, int64_t at, const ru_err *why);
/* The dtype of a field of pixels, which is added next: f32, or u8 with `raw`. */
ru_dtype rui_pixel_dtype(ru_dataset *d);
/* n pixels into the field's form. */
void rui_pixels_put(const ru_dataset *d, const uint8_t *from, int64_t n, void *into);

/* Is each of the `n` floats of field `k` a finite number? Not asked of raw data.
 * Errors: RU_E_DATA naming the first that is not; the caller puts file and sample before it. */
ru_status rui_numbers_check(const ru_dataset *d, uint32_t k, const void *floats, int64_t n,
                            ru_err *err);

/* Which of the format's `count` samples the options take. Errors: RU_E_CONFIG. */
RU_MUST_USE ru_status rui_part_init(rui_part *p, const ru_data_options *opt, int64_t count,
                                    const char *where, ru_err *err);
int64_t rui_part_row(const rui_part *p, int64_t sample);

/* Samples stand in the format's own order, and neighbours may be read at once. */
bool rui_in_order(const ru_dataset *d);
/* Mean and std on n samples. Errors: RU_E_DATA when a number becomes infinite. */
RU_MUST_USE ru_status rui_normalize(const ru_dataset *d, void *const *fields, int64_t n,
                                    ru_err *err);
/* ru_dataset_read without mean and std. */
RU_MUST_USE ru_status rui_read_stored(const ru_dataset *d, int64_t index, void *const *fields,
                                      ru_err *err);

ru_status rui_no_memory(ru_err *err, const char *what, int64_t size_bytes);

/* -- bytes of a file (source.c) ---------------------------------------------------------------- */

typedef struct rui_source {
    const char *path;   /* in the dataset's arena */
    ru_in_file file;    /* fd -1 when resident, or an object */
    ru_object *object;  /* behind an address; NULL: a file, or resident */
    uint8_t *bytes;     /* whole content when resident; else NULL */
    int64_t size_bytes; /* of the content (unpacked) */
    int64_t disk_bytes; /* of the file */
} rui_source;

/* Open `path`, a file or an address; files of at most `resident_max_bytes` are read whole, names
 * ending in .gz are unpacked whole whatever their size (bounded); of others `direct` reads pass by
 * the kernel's cache. *objects is opened with the first address. Errors: RU_E_CONFIG: not direct.
 */
RU_MUST_USE ru_status rui_source_open(ru_arena *arena, ru_objects **objects, const char *path,
                                      int64_t resident_max_bytes, bool direct, rui_source *out,
                                      ru_err *err);
/* The first of `objects` opens them. */
RU_MUST_USE ru_status rui_object_open(ru_objects **objects, const char *address, ru_object **out,
                                      ru_err *err);
void rui_source_close(rui_source *s); /* accepts zeroed memory */
/* Exactly `size_bytes` at `offset`. */
RU_MUST_USE ru_status rui_source_read(const rui_source *s, int64_t offset, void *into,
                                      int64_t size_bytes, ru_err *err);
/* The same without copying when resident, else through `scratch` [size_bytes]. */
RU_MUST_USE ru_status rui_source_view(const rui_source *s, int64_t offset, int64_t size_bytes,
                                      void *scratch, const uint8_t **view, ru_err *err);

/* These bytes will be read soon: the kernel fetches them in the background. A rui_where_fn. */
void rui_source_soon(void *self, const rui_source *s, int64_t offset, int64_t size_bytes);

/* Bytes of a sample for its decoder: rui_source_read and _view, from what was fetched (fetch.h)
 * where it is. */
RU_MUST_USE ru_status rui_bytes_read(const ru_dataset *d, const rui_source *s, int64_t offset,
                                     void *into, int64_t size_bytes, ru_err *err);
RU_MUST_USE ru_status rui_bytes_view(const ru_dataset *d, const rui_source *s, int64_t offset,
                                     int64_t size_bytes, void *scratch, const uint8_t **view,
                                     ru_err *err);
/* The same of what is in memory or was fetched; NULL: neither. */
const uint8_t *rui_bytes_find(const ru_dataset *d, const rui_source *s, int64_t offset,
                              int64_t size_bytes);
/* Where the bytes of samples of the dataset (not of its format) stand: in the cache, or in the
 * format's files. */
void rui_dataset_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self);
/* In the format's files. */
void rui_format_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self);
/* Of a sample that is read, on the average or more. */
int64_t rui_sample_bytes(const ru_dataset *d);

/* Scratch memory of the calling read: `small` when it is enough, else malloc. */
typedef struct rui_scratch {
    void *p;
    bool heap;
} rui_scratch;
RU_MUST_USE ru_status rui_scratch_get(rui_scratch *s, void *small, int64_t small_bytes,
                                      int64_t need_bytes, ru_err *err);
void rui_scratch_put(rui_scratch *s);

/* -- order (order.c) --------------------------------------------------------------------------- */

#define RUI_ORDER_FULL 0x6f72646572u /* "order": the stream of the order of whole epochs */

/* The order numbered `index` of 0 .. count-1 under (seed, stream). */
void rui_order_init(rui_order *o, uint64_t seed, uint64_t stream, uint64_t index, int64_t count);
int64_t rui_order_at(const rui_order *o, int64_t position);

/* -- order in blocks (order_block.c) ----------------------------------------------------------- */

enum {
    RUI_ORDER_WINDOW = 64,           /* blocks that are shuffled with each other */
    RUI_ORDER_BLOCK_BYTES = 1 << 20, /* of the file: a disk reads that much at nearly full rate */
};

typedef struct rui_block_order {
    uint64_t seed;
    int64_t epoch, count;
    int64_t block;           /* samples of a block */
    int64_t window, windows; /* samples of a window; how many there are */
    int64_t shift;
    rui_order blocks; /* of the full blocks */
    rui_order inner;  /* of the samples of window `at` */
    int64_t at;       /* -1: none yet */
} rui_block_order;

void rui_block_order_init(rui_block_order *o, uint64_t seed, int64_t epoch, int64_t count,
                          int64_t block);
/* Sample at `position`; remembers the window it is in. */
int64_t rui_block_order_at(rui_block_order *o, int64_t position);
/* First sample of the block that stands at `slot`, and how many it has; it may go on at sample 0.
 */
int64_t rui_block_order_slot(const rui_block_order *o, int64_t slot, int64_t *n);

/* -- the formats ------------------------------------------------------------------------------- */

/* X(name): one rui_format_<name> each; the order is that of listings. */
#define RUI_FORMAT_LIST(X) \
    X(csv)                 \
    X(libsvm) X(idx) X(cifar) X(npy) X(tokens) X(images) X(tar) X(tfrecord) X(packed) X(synthetic)

#define RUI_X(name) extern const rui_format rui_format_##name;
RUI_FORMAT_LIST(RUI_X)
#undef RUI_X

/* NULL when unknown. */
const rui_format *rui_format_find(const char *name);

#endif
