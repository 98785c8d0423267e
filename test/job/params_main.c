/* Jobs with shared parameters of many seeds: params-seeds FIRST LAST [slices | stages | backup |
 * counts] [log]. Exit code 1 when one breaks; each is told with its seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/worlds/params_world.h"

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t last = argc > 2 ? strtoull(argv[2], NULL, 10) : first;
    bool slices = argc > 3 && strcmp(argv[3], "slices") == 0;
    bool backup = argc > 3 && strcmp(argv[3], "backup") == 0;
    bool counts = argc > 3 && strcmp(argv[3], "counts") == 0;
    bool stages = argc > 3 && strcmp(argv[3], "stages") == 0;
    uint32_t broken = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        ru_params_job job;
        ru_err err;
        ru_params_events events;
        (slices   ? ru_params_draw_sliced
         : backup ? ru_params_draw_backup
         : counts ? ru_params_draw_counted
                  : ru_params_draw)(seed, &job);
        if (stages) {
            ru_params_draw_staged(seed, &job, &events);
        }
        job.log = argc > 3 + slices + stages + backup + counts;
        if (ru_params_check(&job, &err) != RU_OK) {
            (void)printf("%s\n", err.text);
            (void)fflush(stdout);
            broken++;
        }
    }
    (void)printf("%llu seeds, %u broken\n", (unsigned long long)(last - first + 1), broken);
    return broken > 0 ? 1 : 0;
}
