/* The one program: finds the sub-command and runs it. */
#include <stdio.h>

int main(void)
{
    printf("rubato %s\n", RU_VERSION);
    return 0;
}
