/* The environment, apart: a library that reads one variable brings no parsers along. */
#include <stdlib.h>

#include "base/conf.h"

const char *ru_conf_env(const char *name)
{
    return getenv(name);
}
