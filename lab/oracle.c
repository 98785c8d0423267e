/* One process alone: the same samples, the same updates, in whole numbers. */
#include <string.h>

#include "base/hash.h"
#include "lab/job_impl.h"

enum { VALUES = 1024 };

/* A different number for every sample and element; whole, -7..8. */
static float one(int64_t sample, int64_t i)
{
    uint64_t h = ((uint64_t)sample + 1) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    return (float)(int)(h >> (i % 59) & 15) - 7;
}

float rui_simjob_gradient(int64_t from, int64_t to, int64_t i, float param)
{
    float sum = 0;
    for (int64_t p = from; p < to; p++) {
        sum += one(p, i);
    }
    return sum + (float)(to - from) * (float)((int)param & 3);
}

float rui_simjob_first(int64_t i)
{
    return (float)(i * 37 % VALUES);
}

static float wrapped(float v)
{
    int k = (int)v % VALUES;
    return (float)(k < 0 ? k + VALUES : k);
}

/* Slots take a little of the parameter, as weight decay does: neither can be had without the
 * other. */
void rui_simjob_update(float *param, float *slot, float sum)
{
    *slot = wrapped(*slot + sum + (float)((int)*param & 1));
    *param = wrapped(*param + *slot + 1);
}

static uint64_t hash_of(const rui_simjob *j)
{
    int64_t bytes = j->first[j->n_tensors] * (int64_t)sizeof(float);
    return ru_hash_bytes(j->oracle.slot, bytes, ru_hash_bytes(j->oracle.param, bytes, 1));
}

const float *rui_simjob_oracle_sums(rui_simjob *j, int64_t batch)
{
    rui_simjob_oracle *o = &j->oracle;
    for (int64_t i = 0; i < j->first[j->n_tensors] && o->batch != batch; i++) {
        o->sum[i] = rui_simjob_gradient(o->position, o->position + batch, i, o->param[i]);
    }
    o->batch = batch;
    return o->sum;
}

ru_status rui_simjob_oracle_open(rui_simjob *j, ru_err *err)
{
    rui_simjob_oracle *o = &j->oracle;
    int64_t n = j->opt->counted ? 1 : j->first[j->n_tensors];
    o->param = RU_NEW(&j->arena, float, n);
    o->slot = RU_NEW(&j->arena, float, n);
    o->sum = RU_NEW(&j->arena, float, n);
    o->hash = RU_NEW(&j->arena, uint64_t, j->opt->steps + 1);
    if (o->param == NULL || o->slot == NULL || o->sum == NULL || o->hash == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the oracle of a simulated job");
    }
    if (j->opt->counted) {
        return RU_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        o->param[i] = rui_simjob_first(i);
    }
    o->hash[0] = hash_of(j);
    return RU_OK;
}

int64_t rui_simjob_batch_at(const rui_simjob *j, int64_t position)
{
    int64_t batch = j->opt->batch, step = 0, begin = 0;
    for (uint32_t k = 0; k < RU_SIM_BATCHES && j->opt->batches[k].batch > 0; k++) {
        const ru_sim_batch *b = &j->opt->batches[k];
        begin += (b->step - step) * batch;
        if (position < begin) {
            break;
        }
        step = b->step;
        batch = b->batch;
    }
    return batch;
}

void rui_simjob_oracle_to(rui_simjob *j, int64_t step, int64_t batch)
{
    rui_simjob_oracle *o = &j->oracle;
    if (j->opt->counted || step <= o->step) {
        return;
    }
    RU_CHECK(step == o->step + 1);
    int64_t want = rui_simjob_batch_at(j, o->position);
    if (batch != want) {
        rui_simjob_fail(j, NULL, "step %lld had a batch of %lld samples, the job says %lld",
                        (long long)step, (long long)batch, (long long)want);
    }
    const float *sum = rui_simjob_oracle_sums(j, batch);
    for (int64_t i = 0; i < j->first[j->n_tensors]; i++) {
        rui_simjob_update(&o->param[i], &o->slot[i], sum[i]);
    }
    if (o->batch_done != 0 && o->batch_done != batch) {
        rui_simjob_see(j, RU_SIM_SEEN_BATCH);
    }
    o->step = step;
    o->position += batch;
    o->batch = 0;
    o->batch_done = batch;
    o->hash[step] = hash_of(j);
}
