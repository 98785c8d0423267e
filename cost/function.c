#include "cost/function.h"

#include <math.h>

bool ru_function_run_of(const ru_function_rules *r, double workers, double memory_mb, double steps,
                        double step_s, ru_function_run *out)
{
    double lives = 1;
    if (r->life_s > 0) {
        double per_life = floor((r->life_s - r->init_s - r->save_s) / step_s);
        if (!(per_life >= 1)) {
            return false;
        }
        lives = fmax(1, ceil(steps / per_life));
    }
    double seconds = r->init_s + steps * step_s + (lives - 1) * (r->save_s + r->init_s);
    double life = seconds / lives, billed = life;
    if (r->billing_step_s > 0) {
        billed = r->billing_step_s * ceil(life / r->billing_step_s - 1e-9);
    }
    *out = (ru_function_run){.seconds = seconds, .lives = lives};
    out->usd = workers * lives * (memory_mb / 1024 * r->usd_per_gb_s * billed + r->usd_per_call) +
               seconds / 3600 * r->store_usd_per_h;
    return seconds < 9e9 && out->usd < 9e9;
}

double ru_function_sync_s(ru_function_sync how, const ru_function_net *net, double workers,
                          double bytes)
{
    double n = workers, own = net->worker_bytes_per_s, store = net->store_bytes_per_s;
    double add = net->add_bytes_per_s > 0 ? n * bytes / net->add_bytes_per_s : 0;
    double wire = 0, rounds = 0, operations = 0;
    switch (how) {
    case RU_SYNC_SHARDED: /* up G and its sum G/n, down n parts of G/n and n sums */
        wire = fmax((3 * bytes + bytes / n) / own, n * (3 * bytes + bytes / n) / store);
        rounds = 4;
        operations = n * (3 * n + 1);
        add /= n;
        break;
    case RU_SYNC_ALL:
        wire = fmax((n + 1) * bytes / own, n * (n + 1) * bytes / store);
        rounds = 2;
        operations = n * (n + 1);
        break;
    case RU_SYNC_SERVER:
        wire = fmax(2 * bytes / own, 2 * n * bytes / store);
        rounds = 2;
        operations = 2 * n;
        break;
    case RU_SYNC_LEADER:
        wire = fmax((n + 1) * bytes / own, (3 * n - 2) * bytes / store);
        rounds = 4;
        operations = 3 * n;
        break;
    case RU_SYNC_BLOCKS: /* up n - 1 parts of G/n and a sum, down twice n - 1 parts */
        wire = fmax(fmax(bytes, 2 * (n - 1) * bytes / n) / own,
                    fmax(n * bytes, 2 * (n - 1) * bytes) / store);
        /* one block has nothing to overlap with at its begin and at its end */
        wire += (3 * fmax((n - 1) * bytes / n / own, (n - 1) * bytes / store) +
                 fmax(bytes / n / own, bytes / store) - wire) /
                net->blocks;
        rounds = 4;
        operations = net->blocks * n * (3 * n - 2);
        add /= n;
        break;
    }
    double limit = net->operations_per_s > 0 ? operations / net->operations_per_s : 0;
    return fmax(wire, limit) + rounds * net->latency_s + add;
}
