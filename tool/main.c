/* The one program. */
#include "base/conf.h"
#include "env/process/self.h"
#include "tool/run.h"

/* How long a compute thread that waits for the others spins before it sleeps. OpenMP's own default
 * (milliseconds) wastes the time slices of threads that could work when cores are shared: with 12
 * other busy processes on 2 cores an MLP step took 234 ms with the default, 9 to 19 ms with 100 to
 * 5,000 rounds; with the cores to itself 5,000 rounds cost nothing that could be told from noise.
 * The library reads it when it is loaded, so the program starts itself again once. Networks of a
 * hundred short ops suffer with 5,000 rounds too: exec/pool.c shortens waits while cores are
 * shared. */
static const char spin_rounds[] = "5000";

static void limit_spinning(const char *const *words, uint32_t n)
{
    bool chosen = ru_conf_env("GOMP_SPINCOUNT") != NULL || ru_conf_env("OMP_WAIT_POLICY") != NULL;
    if (!chosen && rui_tool_computes(words, n)) {
        ru_self_again("GOMP_SPINCOUNT", spin_rounds);
    }
}

int main(int argc, char **argv)
{
    const char *const *words = (const char *const *)argv;
    if (argc < 1) {
        return 70;
    }
    ru_self_streams();
    limit_spinning(words + 1, (uint32_t)argc - 1);
    ru_self_name("rubato");
    return rui_tool_run(words + 1, (uint32_t)argc - 1);
}
