#include "env/process/cores.h"

#include <sched.h>

int32_t ru_cores_here(void)
{
    return sched_getcpu();
}

uint32_t ru_cores_usable(int32_t *cores, uint32_t max)
{
    cpu_set_t set;
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 0;
    }
    for (int c = 0; c < CPU_SETSIZE && n < max; c++) {
        if (CPU_ISSET((size_t)c, &set)) {
            cores[n++] = c;
        }
    }
    return n;
}

static bool stay(int32_t core, cpu_set_t *before)
{
    cpu_set_t only;
    if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(0, sizeof *before, before) != 0 ||
        !CPU_ISSET((size_t)core, before)) {
        return false;
    }
    CPU_ZERO(&only);
    CPU_SET((size_t)core, &only);
    return sched_setaffinity(0, sizeof only, &only) == 0;
}

bool ru_cores_stay(int32_t core)
{
    cpu_set_t before;
    return stay(core, &before);
}

bool ru_cores_go(int32_t core)
{
    cpu_set_t before;
    return stay(core, &before) && sched_setaffinity(0, sizeof before, &before) == 0;
}
