/* The one program. */
#include "tool/run.h"

int main(int argc, char **argv)
{
    const char *const *words = (const char *const *)argv;
    return argc < 1 ? 70 : rui_tool_run(words + 1, (uint32_t)argc - 1);
}
