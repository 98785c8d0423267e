/* The section `data` of a job, and what follows from it. */
#include <string.h>

#include "train/job/job.h"
#include "train/job/job_impl.h"

static const char *const formats[] = {"csv",      "libsvm", "idx",      "cifar",
                                      "npy",      "tokens", "images",   "tar",
                                      "tfrecord", "packed", "synthetic"};

static const ru_conf_field data_fields[] = {
    RU_ROW(CHOICE, ru_job_data, format, NULL, "format of the files",
           .choices = "csv|libsvm|idx|cifar|npy|tokens|images|tar|tfrecord|packed|synthetic"),
    RU_ROW(TEXT_LIST, ru_job_data, train, "[]",
           "files or folders of the training data, relative to the job file's folder, or "
           "addresses (https://, s3://)"),
    RU_ROW(TEXT_LIST, ru_job_data, test, "[]", "files or folders of the test data"),
    RU_ROW_AS("follow", TIME, ru_job_data, follow_ns, "0s",
              "with --functions: files that come to the folder of 'train', or objects to "
              "s3://BUCKET/FOLDER, are new samples, each used once, in the order of arrival; a "
              "file counts when its size and time are the same in two looks that are so long "
              "apart; 0s: no",
              RU_IN(0, 1e18)),
    RU_ROW(I64, ru_job_data, follow_queue, "0",
           "data.follow, -w MIN:MAX: one worker for each so many samples that wait; 0: 16 batches",
           RU_IN(0, 1e15)),
    RU_ROW(TEXT, ru_job_data, token_file, "",
           "file with the bearer token for https addresses; readable by its owner only"),
    RU_ROW(F64, ru_job_data, validation, "0",
           "fraction of the training samples that is held out for the evaluations, when "
           "there is no test data; the same samples in every run",
           RU_IN(0, 0.9)),
    RU_ROW(F64_LIST, ru_job_data, mean, "[]",
           "subtracted from the inputs, after data.scale: one number, or one for each channel "
           "of images or each feature of vectors",
           RU_IN(-1e30, 1e30)),
    RU_ROW(F64_LIST, ru_job_data, std, "[]",
           "the inputs are divided by it, after data.mean is subtracted", RU_OVER(0, 1e30)),
    RU_ROW(SECTION, ru_job_data, augment, NULL,
           "random changes of the training samples, the same for every number of workers and "
           "after a resume",
           .table = &rui_augment_table),
    RU_ROW(SECTION, ru_job_data, columns, NULL,
           "csv: how columns become inputs; the run keeps what it learns from the training "
           "samples (not from those of data.validation) and uses it wherever it reads data",
           .table = &ru_job_columns_table),
    RU_ROW(TEXT, ru_job_data, generator, "",
           "synthetic: name of the generator, as in `rubato data make`"),
    RU_ROW(I64, ru_job_data, count, "0",
           "number of training samples to use; 0: all; synthetic: number to generate",
           RU_IN(0, 1e15)),
    RU_ROW(I64, ru_job_data, test_count, "0",
           "number of test samples to use or to generate; 0: all", RU_IN(0, 1e15)),
    RU_ROW(I64, ru_job_data, seed, "1", "synthetic: seed of the generator", RU_IN(0, 9e15)),
    RU_ROW(I64, ru_job_data, context, "0",
           "tokens: tokens of a sample; 0: the context of the model", RU_IN(0, 1 << 20)),
    RU_ROW(I64, ru_job_data, stride, "0",
           "tokens: distance between the starts of two samples; 0: the context", RU_IN(0, 1 << 30)),
    RU_ROW(I64, ru_job_data, token_bytes, "0",
           "tokens: bytes of a token: 1, 2 or 4; 0: by the file's name, else 1", RU_IN(0, 4)),
    RU_ROW(I64, ru_job_data, features, "0", "libsvm: number of features; 0: scan the files",
           RU_IN(0, 1 << 30)),
    RU_ROW(I64, ru_job_data, classes, "0", "number of classes; 0: scan the labels",
           RU_IN(0, 1 << 24)),
    RU_ROW(TEXT, ru_job_data, label, "",
           "csv: name or number of the label column; empty: the last column"),
    RU_ROW(BOOL, ru_job_data, header, "false",
           "csv: the first line holds column names; needed only if all names are numbers"),
    RU_ROW(I64, ru_job_data, image_size, "0",
           "images, tar: resize and crop images to this side in pixels; 0: all images must "
           "have one size",
           RU_IN(0, 8192)),
    RU_ROW(F64, ru_job_data, scale, "0",
           "pixels become value * scale + shift; if both are 0, pixels lie between 0 and 1",
           RU_IN(-1e9, 1e9)),
    RU_ROW(F64, ru_job_data, shift, "0", "see scale", RU_IN(-1e9, 1e9)),
    RU_ROW(BOOL, ru_job_data, one_hot, "false", "encode labels as one-hot vectors (for mse)"),
    RU_ROW(CHOICE, ru_job_data, shuffle, "full",
           "order of the training samples; block is for data larger than memory: it reads "
           "large blocks and shuffles within 64 blocks at a time",
           .choices = "none|full|block"),
    RU_ROW(
        BOOL, ru_job_data, strict, "true",
        "true: a damaged sample stops the run; false: Rubato skips damaged samples, warns and "
        "counts them in the summary; `rubato predict` gives them empty answers, and `rubato eval` "
        "leaves them out"),
    RU_ROW(U32, ru_job_data, threads, "1", "number of threads that read and decode samples",
           RU_IN(1, 256)),
    RU_ROW(SIZE, ru_job_data, memory, "256MiB",
           "memory of one worker for training data that is read ahead: decoded batches (at "
           "least two) and bytes of files that are requested or wait to be decoded",
           RU_IN(1 << 20, INT64_C(1) << 40)),
    RU_ROW(BOOL, ru_job_data, direct, "false",
           "true: read files that are not kept in memory past the system's cache (O_DIRECT); "
           "it is an error where the file system does not allow that"),
    RU_ROW(CHOICE, ru_job_data, cache, "none",
           "what Rubato keeps in the folders of `storage` of each sample that it reads, for later "
           "epochs and runs: nothing, the bytes of the files, or the decoded sample; auto: what "
           "saves most by the policy `keep`, from what reading some samples takes",
           .choices = "none|bytes|decoded|auto"),
};

static bool prepares(const ru_job_data *d)
{
    const ru_columns_options *c = &d->columns;
    return c->ignore.n > 0 || c->categorical.n > 0 || c->missing != RU_MISSING_ERROR ||
           c->normalize != 0;
}

static ru_status columns_check(const ru_job_data *d, ru_err *err)
{
    if (!prepares(d)) {
        return RU_OK;
    }
    if (strcmp(formats[d->format], "csv") != 0) {
        return RU_FAIL(err, RU_E_CONFIG, "'columns' works with format csv only, not with %s",
                       formats[d->format]);
    }
    if (d->columns.normalize != 2 && (d->mean.n > 0 || d->std.n > 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'columns' normalises the inputs, and so do 'mean' and 'std'; leave those "
                       "out, or set columns.normalize to false");
    }
    return RU_OK;
}

static ru_status data_check(const void *section, ru_err *err)
{
    const ru_job_data *d = section;
    bool synthetic = strcmp(formats[d->format], "synthetic") == 0;
    if (synthetic && (d->generator[0] == 0 || d->count == 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "format synthetic needs the keys 'generator' and 'count' (`rubato data "
                       "make` lists the generators)");
    }
    if (!synthetic && d->train.n == 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "format %s needs the key 'train' with at least one file or folder",
                       formats[d->format]);
    }
    if (!synthetic && d->generator[0] != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the key 'generator' works with format synthetic only, not with %s",
                       formats[d->format]);
    }
    if (d->validation > 0 && (d->test.n > 0 || d->test_count > 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "there are both test data and 'validation'; leave one of them out");
    }
    if (d->validation > 0 && d->shuffle == RU_SHUFFLE_BLOCK) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'validation' draws single samples, which 'shuffle: block' cannot read in "
                       "large pieces; put the validation samples into a file of their own");
    }
    return columns_check(d, err);
}

/* What would need samples to be there from the beginning, or more than once. */
ru_status rui_job_follow_check(const ru_job *job, ru_err *err)
{
    static const char *const able[] = {"csv", "libsvm", "tar", "tfrecord"};
    const ru_job_data *d = &job->data;
    const ru_job_train *t = &job->train;
    const ru_augment none = {0};
    const struct {
        bool set;
        const char *key;
    } rows[] = {
        {d->validation > 0, "data.validation (data.test may name files)"},
        {d->count > 0, "data.count"},
        {d->cache != RU_CACHE_NONE, "data.cache"},
        {memcmp(&d->augment, &none, sizeof none) != 0, "data.augment"},
        {t->epochs > 0, "train.epochs (train.steps may end the run)"},
        {t->batch_schedule.n > 0, "train.batch_schedule"},
        {t->class_weights.n > 0 && strcmp(t->class_weights.at[0], "balanced") == 0,
         "train.class_weights: balanced (numbers may stand there)"},
    };
    bool fits = false;
    if (d->follow_ns == 0) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(able); k++) {
        fits = fits || strcmp(formats[d->format], able[k]) == 0;
    }
    bool address = d->train.n == 1 && ru_data_is_address(d->train.at[0]);
    if (!fits || d->train.n != 1 || (address && strncmp(d->train.at[0], "s3://", 5) != 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.follow needs one folder as data.train, here or s3://BUCKET/FOLDER, "
                       "with files of format csv, libsvm, tar or tfrecord");
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (rows[k].set) {
            return RU_FAIL(err, RU_E_CONFIG, "data.follow does not go with %s; leave it out",
                           rows[k].key);
        }
    }
    return RU_OK;
}

const ru_conf_table rui_job_data_table = RU_TABLE(
    "data", ru_job_data, data_fields, "training and test data",
    .called =
        "val_split=validation|validation_split=validation|split=validation|num_workers=threads|"
        "workers=threads|path=train|paths=train|files=train|root=train|dataset=format|type=format|"
        "normalize=columns: {normalize: "
        "true}|variance=std|stddev=std|resize=image_size|seq_len=context|"
        "sequence_length=context|num_classes=classes|validation_data=test|val=test|augmentation="
        "augment|transform=augment|transforms=augment|flip=augment: {flip: horizontal}|mixup="
        "augment: {mixup: 0.2}|cutout=augment: {cutout: 8}",
    .check = data_check);

bool ru_job_prepares(const ru_job *job)
{
    return prepares(&job->data);
}

bool ru_job_has_test(const ru_job *job)
{
    return job->data.validation > 0 || job->data.test.n > 0 ||
           (job->data.generator[0] != 0 && job->data.test_count > 0);
}

ru_shuffle ru_job_shuffle(const ru_job *job)
{
    bool any = job->train.shuffle && job->data.follow_ns == 0;
    return any ? (ru_shuffle)job->data.shuffle : RU_SHUFFLE_NONE;
}

ru_data_options ru_job_data_options(const ru_job *job, bool test)
{
    const ru_job_data *d = &job->data;
    bool own = test && !(d->validation > 0); /* the test data are files of their own */
    const ru_conf_texts *paths = own ? &d->test : &d->train;
    return (ru_data_options){
        .format = formats[d->format],
        .paths = paths->at,
        .n_paths = paths->n,
        .context = d->context != 0 ? d->context : job->model.context,
        .stride = d->stride,
        .features = d->features,
        .classes = d->classes,
        .label = d->label[0] != 0 ? d->label : NULL,
        .token_file = d->token_file[0] != 0 ? d->token_file : NULL,
        .header = d->header,
        .image_size = d->image_size,
        .scale = d->scale,
        .shift = d->shift,
        .generator = d->generator[0] != 0 ? d->generator : NULL,
        .seed = (uint64_t)d->seed,
        .first = own ? d->count : 0,
        .count = own ? d->test_count : d->count,
        .held = d->validation,
        .held_out = test,
        .mean = d->mean.at,
        .n_mean = d->mean.n,
        .std = d->std.at,
        .n_std = d->std.n,
        .one_hot = d->one_hot || d->augment.mixup > 0,
        .skip_damaged = !d->strict,
        .regression = job->train.loss == 1 + RU_LOSS_MSE,
        .whole_classes = job->train.loss == 0 || job->train.loss == 1 + RU_LOSS_CROSS_ENTROPY,
        .token_bytes = d->token_bytes,
        .direct = d->direct,
        .cache = {.kind = (ru_cache_kind)d->cache,
                  .tiers = job->storage.at,
                  .n_tiers = job->storage.n},
        .prepare = prepares(d) ? &d->columns : NULL,
    };
}
