/* Keys of data.columns. */
#include <stddef.h>

#include "train/job/job.h"
#include "train/job/job_impl.h"

static const ru_conf_field columns_fields[] = {
    RU_ROW(TEXT_LIST, ru_columns_options, ignore, "[]",
           "names or numbers of columns that are no inputs, such as an id"),
    RU_ROW(TEXT_LIST, ru_columns_options, categorical, "[]",
           "names or numbers of columns whose texts are categories: each category becomes an "
           "input that is 1 or 0; auto (as when empty): all columns with a text that is no "
           "number; none: texts are errors"),
    RU_ROW(CHOICE, ru_columns_options, missing, "error",
           "what becomes of an input without a value (an empty cell, NA, NaN, ?): an error, "
           "the mean of its column (of a column of texts all inputs are 0), or its row is "
           "left out (an empty answer in rubato predict)",
           .choices = "error|mean|drop"),
    RU_ROW(CHOICE, ru_columns_options, normalize, "auto",
           "numbers become (number - mean) / standard deviation of their column, and 0 where "
           "all are equal; auto: yes, when another key of data.columns is set",
           .choices = "auto|true|false"),
};

const ru_conf_table ru_job_columns_table =
    RU_TABLE("columns", ru_columns_options, columns_fields, "columns of csv",
             .called = "drop=ignore|exclude=ignore|skip=ignore|categories=categorical|onehot="
                       "categorical|one_hot=categorical|impute=missing|fillna=missing|na=missing|"
                       "standardize=normalize|scale=normalize|normalise=normalize");
