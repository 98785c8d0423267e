/* Readers: samples by position, decoded in the background.
 *
 * A dataset is an indexed set of samples, each with the same fields ("x", "y", ...) of fixed type.
 * The order of training is a pure function: sample = permutation(seed, epoch, position), a
 * counter-based bijection that needs no memory, so any worker can read any position and a resume
 * needs one number. A stream gives batches in that order; threads read and decode ahead into a ring
 * of batches.
 *
 * Thread: a dataset may be read by many threads; a stream has one consumer. */
#ifndef RU_DATA_READER_H
#define RU_DATA_READER_H

#include "base/status.h"
#include "data/format/columns.h"
#include "store/tiers/tiers.h"
#include "world/graph/graph.h"

RU_API_BEGIN

typedef struct ru_recorder ru_recorder; /* trace/record/recorder.h */

enum { RU_FIELDS_MAX = 8 };

typedef struct ru_field {
    const char *name; /* "x", "y"; "ids" for tokens */
    ru_type type;     /* of one sample: no batch dimension */
} ru_field;

typedef struct ru_dataset ru_dataset;
typedef struct ru_stream ru_stream;

/* What is kept of samples that were read (data/cache.h). */
typedef enum ru_cache_kind {
    RU_CACHE_NONE,
    RU_CACHE_BYTES,   /* the bytes of the files: saves reading them again */
    RU_CACHE_DECODED, /* the fields, pixels as u8: saves decoding them, too */
    RU_CACHE_AUTO,    /* of jobs: one of these; a dataset is never opened with it */
} ru_cache_kind;

/* View until the dataset is closed. */
typedef struct ru_cache_options {
    ru_cache_kind kind;
    const ru_disk_tier *tiers; /* [n_tiers] where samples are kept, the first one first */
    uint32_t n_tiers;
    bool waits; /* reading waits for the disk: each sample that finds room is kept at once */
    /* Why, for people (`rubato store`): id of the plan of `keep`, and what it predicts of reading
     * an epoch without and with what is kept; NULL: the caller says so. */
    const char *plan;
    double none_s, epoch_s;
} ru_cache_options;

/* Of generators; 0: the generator's default. */
typedef struct ru_gen_options {
    int64_t hidden, rank, users, items, vocab, length;
    double noise;
    bool noise_given; /* else the default */
} ru_gen_options;

/* Filled from the job's `data:` section; strings are view. */
typedef struct ru_data_options {
    const char *format; /* csv libsvm idx cifar npy tokens images tar tfrecord packed synthetic */
    const char *const *paths; /* [n_paths] files or folders, format-dependent */
    uint32_t n_paths;
    const char *token_file; /* with the bearer token for http and https addresses; NULL: none */
    int64_t context;        /* tokens: length of a sample; y is x shifted by one */
    int64_t stride;         /* tokens: distance of samples; 0: context */
    int64_t features;       /* libsvm: width; 0: found by a scan */
    int64_t classes;        /* labels must be in 0..classes-1; 0: found by a scan */
    const char *label;      /* csv: column name or number of the label; NULL: last */
    bool header;            /* csv: first line is names (also found by itself when not numbers) */
    int64_t image_size;     /* images, tar: resize and crop to this; 0: all must agree */
    double scale, shift;    /* u8 pixels -> x*scale + shift; both 0: x/255 */
    const char *generator;  /* synthetic: name as in `rubato data make` */
    ru_gen_options gen;     /* synthetic: further sizes */
    uint64_t seed;          /* synthetic */
    int64_t first;          /* synthetic: number of the first sample: a test set starts behind its
                               training set */
    int64_t count;          /* synthetic; else 0 = all, n = first n samples */
    /* Part of the samples, drawn by a fixed permutation, is held out: the dataset is that part
     * (held_out), or the rest. */
    double held; /* fraction; 0: all samples */
    bool held_out;
    /* x becomes (x - mean) / std: one number, or one for each channel of an image [c, h, w] or each
     * feature of a vector. View until the dataset is open. */
    const double *mean, *std; /* [n_mean], [n_std]; std is positive */
    uint32_t n_mean, n_std;   /* 0: no mean, no std */
    bool one_hot;
    bool skip_damaged; /* damaged samples are replaced by the next good one and counted; else errors
                        */
    bool blank_damaged; /* with skip_damaged, for answers to each sample: x of a damaged one is NaN
                           instead; an error where x holds no floats, and in libsvm */
    bool only_good;  /* with skip_damaged: all samples are read at open, and damaged ones are none
                        of the dataset's */
    bool raw;        /* numbers as stored: u8 pixels unscaled, tokens in the file's own width */
    bool regression; /* csv, libsvm: y is a number (f32) even when all labels look like classes */
    bool whole_classes;  /* csv, libsvm: labels such as 1.0 are class numbers, when all are whole */
    int64_t token_bytes; /* tokens: 1, 2 or 4 bytes each; 0: by the name's ending, else 1 */
    const char *const *class_names; /* in the order of their numbers (of the training set, for its
                                       test set) */
    uint32_t n_class_names;         /* 0: the names found, sorted */
    const ru_columns *columns;      /* csv: of the training set; NULL: as the first file says. View
                                       until the dataset is open */
    const ru_columns_options *prepare; /* csv without `columns`: learn how to prepare the inputs;
                                          NULL: they are numbers as they stand */
    bool unlabelled; /* csv with `columns`, images: labels are not needed; there is no y */
    int64_t resident_max_bytes; /* files up to this are kept in memory; 0: 64 MiB, -1: none */
    bool direct; /* files that are not kept in memory are read past the kernel's cache (O_DIRECT) */
    ru_cache_options cache;
} ru_data_options;

/* Open and index. Errors: RU_E_MISSING, RU_E_DATA with file and place, RU_E_CONFIG. */
RU_MUST_USE ru_status ru_dataset_open(const ru_data_options *opt, ru_dataset **out, ru_err *err);
void ru_dataset_close(ru_dataset *d);

int64_t ru_dataset_count(const ru_dataset *d);                            /* samples */
uint32_t ru_dataset_fields(const ru_dataset *d, const ru_field **fields); /* view until close */
int64_t ru_dataset_classes(const ru_dataset *d);                   /* 0: not a classification set */
const char *ru_dataset_class_name(const ru_dataset *d, int64_t k); /* NULL: none */
const ru_columns *ru_dataset_columns(const ru_dataset *d); /* csv; NULL: none. View until close */

/* Decode sample `index` (dataset order) into fields[k] (row-major, of the field's type). */
RU_MUST_USE ru_status ru_dataset_read(const ru_dataset *d, int64_t index, void *const *fields,
                                      ru_err *err);

/* Position -> sample index within an epoch of `count` samples: a bijection of 0..count-1 for every
 * (seed, epoch). Pure. */
int64_t ru_order_sample(uint64_t seed, int64_t epoch, int64_t position, int64_t count);

typedef enum ru_shuffle {
    RU_SHUFFLE_NONE,  /* dataset order */
    RU_SHUFFLE_FULL,  /* every order is as likely */
    RU_SHUFFLE_BLOCK, /* blocks of neighbours in random order, shuffled within windows of 64 blocks:
                         a file larger than memory is read in large pieces */
} ru_shuffle;

typedef enum ru_flip {
    RU_FLIP_NONE,
    RU_FLIP_HORIZONTAL,
    RU_FLIP_VERTICAL,
    RU_FLIP_BOTH,
} ru_flip;

/* Random changes of samples, a function of (seed, epoch, sample): images [c, h, w], except mixup.
 * 0: not this one. */
typedef struct ru_augment {
    ru_flip flip;      /* each direction in half of the samples */
    int64_t crop;      /* pixels of black around the image, from which its size is cut anywhere */
    double rotation;   /* by at most this many degrees */
    double brightness; /* times 1 - this to 1 + this */
    double contrast;   /* distance from the image's mean gray, likewise */
    double saturation; /* distance from a pixel's gray, likewise */
    int64_t cutout;    /* side of a square that becomes 0 (after mean and std) */
    double mixup;      /* inputs and labels are mixed with those of the sample before in the order,
                          in shares from Beta(mixup, mixup); labels must be f32 */
} ru_augment;

enum { RU_STREAM_AHEAD_MAX = 4096 };

typedef struct ru_stream_options {
    uint64_t seed;
    ru_augment augment;
    ru_shuffle shuffle;
    int64_t block;      /* samples of a block; 0: as many as have 1 MiB on the disk */
    int64_t batch;      /* samples of a batch */
    int64_t room;       /* samples that ru_stream_share_set may raise it to; 0: batch */
    int64_t stride;     /* distance of the first samples of two batches, at least `batch`; 0: batch.
                           More: a worker reads its part of every global batch (endless only) */
    int64_t start;      /* global position of the first sample: epoch * count + position */
    int64_t epochs;     /* end after this many, counted from global position 0; 0: endless. Batches
                           cross epoch borders unless drop_last */
    bool drop_last;     /* skip the incomplete batch at every epoch's end */
    bool partial_last;  /* evaluation: the very last batch may be short; else it is left out */
    uint32_t threads;   /* readers; 0: 1 */
    uint32_t ahead;     /* batches read ahead; 0: 4 */
    uint32_t ahead_max; /* what ru_stream_ahead_set may raise it to, where samples are requested */
    int64_t bytes_max;  /* bound on batches read ahead and on bytes requested for them; 0: 256 MiB.
                           Lowers `ahead` and `ahead_max`, never below 1 */
    ru_recorder *recorder; /* takes a span "read" of each batch; NULL: none */
    int64_t wait_ns;       /* the longest that ru_stream_next waits at one time; 0: no limit */
    bool read_threads;     /* files are read by threads, not by io_uring */
    bool read_plain;       /* io_uring without fixed files and memory (to compare) */
} ru_stream_options;

typedef struct ru_batch {
    void *fields[RU_FIELDS_MAX]; /* [n, ...] row-major; view until the next ru_stream_next */
    int64_t n;                   /* samples */
    int64_t position;            /* global position of the first */
    int64_t epoch;               /* of the first sample */
    int64_t next;                /* global position from which to continue after this batch */
    int64_t wait_ns;             /* how long the consumer waited */
    int64_t fill_ns;             /* since a reading thread took it until it was decoded */
} ru_batch;

RU_MUST_USE ru_status ru_stream_open(ru_dataset *d, const ru_stream_options *opt, ru_stream **out,
                                     ru_err *err);
/* RU_OK with n = 0: the end. RU_E_AGAIN: not there after wait_ns. */
RU_MUST_USE ru_status ru_stream_next(ru_stream *s, ru_batch *batch, ru_err *err);
void ru_stream_close(ru_stream *s);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Why the labels are numbers: the first one that is no class number, with its file and place. NULL:
 * they are classes, or not known. View until close. */
const char *ru_dataset_not_classes(const ru_dataset *d);
const char *ru_dataset_format(const ru_dataset *d);
/* Is it an address (http://, https://, s3://), and no path? */
bool ru_data_is_address(const char *path);
int64_t ru_dataset_bytes(const ru_dataset *d);   /* on disk */
int64_t ru_dataset_skipped(const ru_dataset *d); /* damaged samples met so far, each once */
const char *ru_dataset_skipped_first(const ru_dataset *d); /* what is wrong with the first */
/* Where sample `index` stands, for people: its file, and its number where files hold many. Text in
 * `into`. */
const char *ru_dataset_where(const ru_dataset *d, int64_t index, char *into, int64_t size_bytes);
/* The same for the order in blocks of `block` neighbours. */
int64_t ru_order_block_sample(uint64_t seed, int64_t epoch, int64_t position, int64_t count,
                              int64_t block);

/* The next batch has the `n` samples from global position `start` on, and every later one as many,
 * at the stream's stride. Of batches that were read ahead the samples that stay are kept; the
 * others are read by ru_stream_next. False, and nothing changes: that would be more than a quarter
 * of them, or n is beyond `room`, or this stream cannot (it has an end, or reads over a network);
 * open another. */
bool ru_stream_share_set(ru_stream *s, int64_t start, int64_t n);
/* Read `batches` ahead from now on, within ru_stream_ahead_range. Samples and order stay. */
void ru_stream_ahead_set(ru_stream *s, uint32_t batches);
void ru_stream_ahead_range(const ru_stream *s, uint32_t *least, uint32_t *most);
/* Requests of the stream to files (samples in memory need none). */
typedef struct ru_read_done {
    int64_t issued_ns, ended_ns, size_bytes;
} ru_read_done;
/* Those that ended since the last call, at most `max`; each thread's by batch, in no order within
 * one. Of more than RU_READS_KEPT that nobody takes, the newest are not kept. */
enum { RU_READS_KEPT = 8192 };
uint32_t ru_stream_reads_take(ru_stream *s, ru_read_done *into, uint32_t max);
/* From the next batches on: requests of at most `size_bytes`, `depth` outstanding over all threads.
 */
void ru_stream_reads_set(ru_stream *s, int64_t size_bytes, uint32_t depth);
/* Any thread, at once: at most `outstanding_bytes` instead, whatever depth is set; 0: no more. */
void ru_stream_reads_share(ru_stream *s, int64_t outstanding_bytes);
uint32_t ru_stream_reads_depth(ru_stream *s); /* in force, over all threads */
/* What the requests did so far, in all; any thread. */
typedef struct ru_stream_reads_sum {
    int64_t bytes;             /* delivered */
    int64_t busy_ns;           /* some were outstanding */
    int64_t stall_ns;          /* the consumer waited, and its batch for requests */
    int64_t batch_bytes;       /* of a batch, in the files */
    int64_t outstanding_bytes; /* that may be now */
} ru_stream_reads_sum;
void ru_stream_reads_sum_get(ru_stream *s, ru_stream_reads_sum *into);
bool ru_stream_reads(const ru_stream *s); /* are there any? */
/* What makes them, for people: "io_uring", "threads"; NULL: there are none. */
const char *ru_stream_reads_by(const ru_stream *s);
/* So many queues of io_uring look up the pages of their buffers, or their files, for every request;
 * more of them may come while the stream runs. `why`: the reason of the last one. */
uint32_t ru_stream_reads_plain(ru_stream *s, char *why, uint32_t why_max);
/* Bytes that can be requested or wait for their decoding; a part of bytes_max. */
int64_t ru_stream_reads_memory(const ru_stream *s);
bool ru_stream_reads_far(const ru_stream *s); /* they go over a network */
/* Each request is a whole file of its own, whatever `size_bytes` is set. */
bool ru_stream_reads_files(const ru_stream *s);
/* Index in the dataset of the sample at a global position. */
int64_t ru_stream_sample(const ru_stream *s, int64_t position);

#endif
