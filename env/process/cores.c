#include "env/process/cores.h"

#include <sched.h>

int32_t ru_cores_here(void)
{
    return sched_getcpu();
}

static bool stay(uint32_t core, cpu_set_t *before)
{
    cpu_set_t only;
    if (core >= CPU_SETSIZE || sched_getaffinity(0, sizeof *before, before) != 0 ||
        !CPU_ISSET(core, before)) {
        return false;
    }
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    return sched_setaffinity(0, sizeof only, &only) == 0;
}

bool ru_cores_stay(uint32_t core)
{
    cpu_set_t before;
    return stay(core, &before);
}

bool ru_cores_go(uint32_t core)
{
    cpu_set_t before;
    return stay(core, &before) && sched_setaffinity(0, sizeof before, &before) == 0;
}
