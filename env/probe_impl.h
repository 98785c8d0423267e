/* Inside of env/: telling the hook of the calling thread. Thread: any. */
#ifndef RU_ENV_PROBE_IMPL_H
#define RU_ENV_PROBE_IMPL_H

#include "env/probe.h"

bool rui_probed(void); /* is there a hook? */
void rui_probe(ru_probe_act act, int64_t start_ns, int64_t end_ns, int64_t value);

#endif
