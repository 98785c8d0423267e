/* Batches that adapt: what the leader wants is in force on all members from the same step on, and
 * the job ends when the worth of its steps adds up, whoever leads. */
#include "train/elastic/elastic_impl.h"

#include <math.h>

#include "test/job/lives.h"
#include "test/test.h"

enum { STEPS = 40, FROM = 10 };

static const double gain = 1.5;

static ru_elastic *elastic_of(const life *l)
{
    return l->elastic;
}

/* Twice the first batch once FROM steps are done; a step of it is worth 1.5. */
static void pace(void *self, ru_pace *p)
{
    const life *l = self;
    if (elastic_of(l)->committed >= FROM) {
        *p = (ru_pace){.batch = 2 * l->batch, .gain = gain};
    }
}

static void progress_ends_the_job(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        job j = {0};
        job_open(&j, 3, STEPS, 0);
        for (uint32_t i = 0; i < 3; i++) {
            j.l[i]->depth = depth;
            elastic_of(j.l[i])->opt.pace = pace;
        }
        assert_true(job_run(&j));
        const rui_el_view *v = &elastic_of(j.l[0])->v;
        assert_int_equal(v->batch, 2 * j.l[0]->batch);
        assert_true(v->gain >= gain && v->gain <= gain);
        assert_true(v->start >= FROM && v->start <= FROM + 2);
        int64_t more = (int64_t)ceil((double)(STEPS - v->start) / gain);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->committed, v->start + more);
            assert_true(fabs(rui_el_progress(elastic_of(j.l[i]), v->start + more) -
                             ((double)v->start + gain * (double)more)) < 1e-9);
        }
        assert_int_equal(elastic_of(j.l[0])->position, (v->start + 2 * more) * j.l[0]->batch);
        job_close(&j);
    }
}

RU_TESTS(train_elastic_pace, cmocka_unit_test(progress_ends_the_job))
