/* Making data with known truth, and turning any readable data into another form.
 *
 * Thread: any. */
#ifndef RU_DATA_MAKE_H
#define RU_DATA_MAKE_H

#include "data/reader.h"

RU_API_BEGIN

typedef struct ru_make_options {
    const char *name;   /* a generator, or "text" */
    const char *dir;    /* made when it is not there */
    int64_t count;      /* samples (text and grammar: bytes) of the training part; 0: default */
    int64_t test_count; /* of the test part; 0: default, -1: none */
    uint64_t seed;
    int64_t features, classes; /* 0: default */
    ru_gen_options gen;
    const char *const *files; /* text: files and folders to read; [n_files] */
    uint32_t n_files;
    const char *tokenizer; /* text: tokenizer.json; NULL: bytes are tokens */
    uint32_t threads;
} ru_make_options;

typedef struct ru_make_report {
    int64_t count, test_count; /* what was made */
    int64_t bytes;
    char hint[RU_ERR_TEXT_MAX]; /* the `data:` section of a job that reads it (YAML lines) */
} ru_make_report;

/* Write the files and truth.json into dir. Errors: RU_E_CONFIG, RU_E_CREATE, RU_E_MISSING. */
RU_MUST_USE ru_status ru_data_make(const ru_make_options *opt, ru_make_report *report, ru_err *err);

/* Write all samples of an open set in another form as dir/PREFIX... ; `form` is one of
 * ru_import_form(). */
RU_MUST_USE ru_status ru_data_import(ru_dataset *d, const char *form, const char *dir,
                                     const char *prefix, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Names and helps of what can be made; NULL past the end. */
const char *ru_make_name(uint32_t k);
const char *ru_make_help(uint32_t k);
const char *ru_import_form(uint32_t k);

#endif
