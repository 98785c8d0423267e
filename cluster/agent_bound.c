/* What bounds the workers of a node: a control group for each. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "cluster/agent_impl.h"

/* Several agents may be on one machine: the name holds which folder is meant. */
static void name_of(const rui_proc *p, char into[64])
{
    const char *folder = p->agent->opt->folder;
    (void)snprintf(into, 64, "rubato-%08x/%u-%u",
                   (unsigned)ru_hash_bytes(folder, (int64_t)strlen(folder), 1), p->job, p->rank);
}

void rui_agent_bound(rui_proc *p)
{
    const ru_group_limits *l = &p->agent->opt->limits;
    char name[64];
    ru_err err = {0};
    uint32_t lacks = 0;
    if (l->cpu_quota_ns == 0 && l->memory_bytes == 0 && l->pids == 0) {
        return;
    }
    name_of(p, name);
    ru_status st = ru_group_make(name, l, NULL, &lacks, &p->group, &err);
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "cluster", "group", "worker %s is not bounded: %s", name, err.text);
    } else if ((lacks & ~p->agent->told_lacks) != 0) {
        p->agent->told_lacks |= lacks;
        ru_log(RU_LOG_WARN, "cluster", "group", "this node does not bound %s of its workers: %s",
               ru_group_names(lacks), err.text);
    }
}

void rui_agent_unbound(rui_proc *p)
{
    ru_group_figures f;
    if (p->group == NULL) {
        return;
    }
    ru_group_read(p->group, &f);
    if (f.oom_kills > 0) { /* it could not tell by itself */
        (void)snprintf(p->why, sizeof p->why,
                       "out of memory: the kernel ended a worker at its limit of %lld MiB on node "
                       "%s; let the job have smaller batches or more workers, or raise memory of "
                       "the node",
                       (long long)(p->agent->opt->limits.memory_bytes >> 20), p->agent->opt->name);
    }
    (void)ru_group_kill(p->group); /* what it started has nobody who waits for it */
    ru_status st = ru_group_remove(p->group, NULL);
    if (st != RU_E_AGAIN) { /* else when the record goes, too */
        ru_group_close(p->group);
        p->group = NULL;
    }
}
