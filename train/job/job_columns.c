/* Keys of data.columns. */
#include <stddef.h>

#include "train/job/job.h"
#include "train/job/job_impl.h"

#define ROW(type_, key_, ...) RUI_ROW(type_, ru_columns_options, key_, __VA_ARGS__)

static const ru_conf_field columns_fields[] = {
    ROW(TEXT_LIST, ignore, .def = "[]",
        .help = "names or numbers of columns that are no inputs, such as an id"),
    ROW(TEXT_LIST, categorical, .def = "[]",
        .help = "names or numbers of columns whose texts are categories: each category becomes an "
                "input that is 1 or 0; auto (as when empty): all columns with a text that is no "
                "number; none: texts are errors"),
    ROW(CHOICE, missing, .def = "error", .choices = "error|mean|drop",
        .help = "what becomes of an input without a value (an empty cell, NA, NaN, ?): an error, "
                "the mean of its column (of a column of texts all inputs are 0), or its row is "
                "left out (an error in rubato predict)"),
    ROW(CHOICE, normalize, .def = "auto", .choices = "auto|true|false",
        .help = "numbers become (number - mean) / standard deviation of their column, and 0 where "
                "all are equal; auto: yes, when another key of data.columns is set"),
};

const ru_conf_table ru_job_columns_table =
    RUI_TABLE(columns, ru_columns_options,
              .called = "drop=ignore|exclude=ignore|skip=ignore|categories=categorical|onehot="
                        "categorical|one_hot=categorical|impute=missing|fillna=missing|na=missing|"
                        "standardize=normalize|scale=normalize|normalise=normalize",
              .help = "columns of csv");
