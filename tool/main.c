/* The program `rubato`. */
#include "env/process/self.h"
#include "tool/run.h"

int main(int argc, char **argv)
{
    const char *const *words = (const char *const *)argv;
    if (argc < 1) {
        return 70;
    }
    ru_self_streams();
    if (rui_tool_computes(words + 1, (uint32_t)argc - 1)) {
        ru_tool_limit_spinning();
    }
    ru_self_name("rubato");
    return rui_tool_run(words + 1, (uint32_t)argc - 1);
}
