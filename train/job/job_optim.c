/* Optimizers and schedules of a job file. */
#include <stddef.h>

#include "train/job/job.h"
#include "train/job/job_impl.h"

/* -- optimizer --------------------------------------------------------------------------------- */

#define LR_ROW(struct_, def_) RU_ROW(F64, struct_, lr, def_, "learning rate", RU_OVER(0, 1000))
#define DECAY_ROW(struct_, def_, help_) \
    RU_ROW(F64, struct_, weight_decay, def_, help_, RU_IN(0, 100))

static const ru_conf_field sgd_fields[] = {
    LR_ROW(ru_job_sgd, "0.01"),
    RU_ROW(F64, ru_job_sgd, momentum, "0",
           "momentum: fraction of the previous update that is added to the next", RU_IN(0, 0.9999)),
    RU_ROW(BOOL, ru_job_sgd, nesterov, "false", "use Nesterov momentum"),
    DECAY_ROW(ru_job_sgd, "0", "L2 penalty: this times the parameter is added to the gradient"),
};

static ru_status sgd_check(const void *section, ru_err *err)
{
    const ru_job_sgd *s = section;
    if (s->nesterov && !(s->momentum > 0)) {
        return RU_FAIL(err, RU_E_CONFIG, "nesterov needs a momentum above 0");
    }
    return RU_OK;
}

#define ADAM_ROWS(decay_, help_)                                                             \
    LR_ROW(ru_job_adam, "0.001"),                                                            \
        RU_ROW(F64, ru_job_adam, beta1, "0.9", "decay rate of the moving mean of gradients", \
               RU_IN(0, 0.999999)),                                                          \
        RU_ROW(F64, ru_job_adam, beta2, "0.999",                                             \
               "decay rate of the moving mean of squared gradients", RU_IN(0, 0.99999999)),  \
        RU_ROW(F64, ru_job_adam, epsilon, "1e-8",                                            \
               "added to the denominator to avoid division by zero", RU_OVER(0, 1)),         \
        DECAY_ROW(ru_job_adam, decay_, help_)

#define DECOUPLED "decoupled weight decay: each step reduces a parameter by lr times this fraction"

static const ru_conf_field adam_fields[] = {
    ADAM_ROWS("0", "L2 penalty: this times the parameter is added to the gradient"),
};
static const ru_conf_field adamw_fields[] = {
    ADAM_ROWS("0.01", DECOUPLED),
};

static const ru_conf_field adagrad_fields[] = {
    LR_ROW(ru_job_adagrad, "0.01"),
    RU_ROW(F64, ru_job_adagrad, epsilon, "1e-10",
           "added to the denominator to avoid division by zero", RU_OVER(0, 1)),
    DECAY_ROW(ru_job_adagrad, "0", "L2 penalty: this times the parameter is added to the gradient"),
};

static const ru_conf_field rmsprop_fields[] = {
    LR_ROW(ru_job_rmsprop, "0.01"),
    RU_ROW(F64, ru_job_rmsprop, alpha, "0.99", "decay rate of the moving mean of squared gradients",
           RU_IN(0, 0.99999999)),
    RU_ROW(F64, ru_job_rmsprop, epsilon, "1e-8",
           "added to the denominator to avoid division by zero", RU_OVER(0, 1)),
    RU_ROW(F64, ru_job_rmsprop, momentum, "0",
           "momentum: fraction of the previous update that is added to the next", RU_IN(0, 0.9999)),
    DECAY_ROW(ru_job_rmsprop, "0", "L2 penalty: this times the parameter is added to the gradient"),
};

static const ru_conf_field lion_fields[] = {
    LR_ROW(ru_job_adam, "0.0001"),
    RU_ROW(F64, ru_job_adam, beta1, "0.9", "share of the momentum in the direction of a step",
           RU_IN(0, 0.999999)),
    RU_ROW(F64, ru_job_adam, beta2, "0.99", "decay rate of the momentum", RU_IN(0, 0.99999999)),
    DECAY_ROW(ru_job_adam, "0", DECOUPLED),
};

static const ru_conf_field lamb_fields[] = {
    LR_ROW(ru_job_adam, "0.001"),
    RU_ROW(F64, ru_job_adam, beta1, "0.9", "decay rate of the moving mean of gradients",
           RU_IN(0, 0.999999)),
    RU_ROW(F64, ru_job_adam, beta2, "0.999", "decay rate of the moving mean of squared gradients",
           RU_IN(0, 0.99999999)),
    RU_ROW(F64, ru_job_adam, epsilon, "1e-6", "added to the denominator to avoid division by zero",
           RU_OVER(0, 1)),
    DECAY_ROW(ru_job_adam, "0.01",
              "this times the parameter is added to the direction before its norm is taken"),
};

#define RATE_CALLED \
    "learning_rate=lr|eta=lr|wd=weight_decay|decay=weight_decay|l2=weight_decay|eps=epsilon"
#define BETA_CALLED "|beta_1=beta1|beta_2=beta2|betas=beta1 and beta2"

static const ru_conf_table rmsprop_table =
    RU_TABLE("rmsprop", ru_job_rmsprop, rmsprop_fields, "RMSprop",
             .called = RATE_CALLED "|rho=alpha|smoothing=alpha");
static const ru_conf_table lion_table =
    RU_TABLE("lion", ru_job_adam, lion_fields, "Lion", .called = RATE_CALLED BETA_CALLED);
static const ru_conf_table lamb_table =
    RU_TABLE("lamb", ru_job_adam, lamb_fields, "LAMB", .called = RATE_CALLED BETA_CALLED);

static const ru_conf_table sgd_table =
    RU_TABLE("sgd", ru_job_sgd, sgd_fields, "stochastic gradient descent", .check = sgd_check,
             .called = RATE_CALLED);
static const ru_conf_table adam_table =
    RU_TABLE("adam", ru_job_adam, adam_fields, "Adam", .called = RATE_CALLED BETA_CALLED);
static const ru_conf_table adamw_table =
    RU_TABLE("adamw", ru_job_adam, adamw_fields, "Adam with decoupled weight decay",
             .called = RATE_CALLED BETA_CALLED);
static const ru_conf_table adagrad_table =
    RU_TABLE("adagrad", ru_job_adagrad, adagrad_fields, "Adagrad", .called = RATE_CALLED);

static const ru_conf_field optimizer_fields[] = {
    RU_ROW(SECTION, ru_job_optimizer, sgd, NULL, "SGD", .table = &sgd_table),
    RU_ROW(SECTION, ru_job_optimizer, adam, NULL, "Adam", .table = &adam_table),
    RU_ROW(SECTION, ru_job_optimizer, adamw, NULL, "AdamW", .table = &adamw_table),
    RU_ROW(SECTION, ru_job_optimizer, adagrad, NULL, "Adagrad", .table = &adagrad_table),
    RU_ROW(SECTION, ru_job_optimizer, rmsprop, NULL, "RMSprop, not centered",
           .table = &rmsprop_table),
    RU_ROW(SECTION, ru_job_optimizer, lion, NULL,
           "Lion: steps of equal size in every element; lr is a tenth of Adam's or less",
           .table = &lion_table),
    RU_ROW(SECTION, ru_job_optimizer, lamb, NULL,
           "LAMB: Adam whose step is scaled by the norm of each parameter, for large batches",
           .table = &lamb_table),
};

const ru_conf_table rui_job_optimizer_table = RU_TABLE(
    "optimizer", ru_job_optimizer, optimizer_fields, "algorithm that updates the parameters",
    .one_of = "sgd|adam|adamw|adagrad|rmsprop|lion|lamb",
    .called =
        "adam_w=adamw|rms_prop=rmsprop|momentum=sgd: {momentum: 0.9}|lr=sgd: {lr: 0.1}|name=sgd",
    .which_offset = offsetof(ru_job_optimizer, which));

/* -- groups of parameters ---------------------------------------------------------------------- */

static const ru_conf_field group_fields[] = {
    RU_ROW(TEXT, ru_param_group, match, NULL,
           "names of the parameters, such as layer1.*; * stands for any characters"),
    RU_ROW(F64, ru_param_group, lr, "1", "factor of the learning rate", RU_IN(0, 1e6)),
    RU_ROW(F64, ru_param_group, weight_decay, "-1",
           "weight decay instead of the optimizer's; -1: the optimizer's", RU_IN(-1, 100)),
    RU_ROW(BOOL, ru_param_group, freeze, "false",
           "these parameters do not change; they take no gradient and no optimizer state"),
};

const ru_conf_table rui_job_group_table =
    RU_TABLE("group", ru_param_group, group_fields, "parameters with settings of their own",
             .called = "name=match|params=match|pattern=match|lr_factor=lr|lr_mult=lr|"
                       "learning_rate=lr|frozen=freeze");

/* -- schedule ---------------------------------------------------------------------------------- */

#define WARMUP_ROW                         \
    RU_ROW(I64, ru_job_curve, warmup, "0", \
           "number of warm-up steps, in which the learning rate rises linearly", RU_IN(0, 1e9))
#define FLOOR_ROW \
    RU_ROW(F64, ru_job_curve, floor, "0", "final learning rate as a fraction of lr", RU_IN(0, 1))

static const ru_conf_field constant_fields[] = {
    WARMUP_ROW,
};
static const ru_conf_field step_fields[] = {
    WARMUP_ROW,
    RU_ROW(I64, ru_job_curve, every, "1000", "number of steps between two reductions",
           RU_IN(1, 1e12)),
    RU_ROW(F64, ru_job_curve, gamma, "0.1", "factor of each reduction of the learning rate",
           RU_OVER(0, 1)),
};
static const ru_conf_field cosine_fields[] = {
    WARMUP_ROW,
    FLOOR_ROW,
};
static const ru_conf_field linear_fields[] = {
    WARMUP_ROW,
    FLOOR_ROW,
};

static const ru_conf_field one_cycle_fields[] = {
    RU_ROW(F64, ru_job_curve, start, "0.04",
           "first learning rate as a fraction of lr, which is the highest", RU_IN(0, 1)),
    RU_ROW(F64, ru_job_curve, rise, "0.3",
           "fraction of the run during which the learning rate rises", RU_IN(0.001, 0.999)),
    RU_ROW(F64, ru_job_curve, floor, "4e-6", "final learning rate as a fraction of lr",
           RU_IN(0, 1)),
};

static const ru_conf_table constant_table =
    RU_TABLE("constant", ru_job_curve, constant_fields, "constant learning rate");
static const ru_conf_table step_table =
    RU_TABLE("step", ru_job_curve, step_fields, "learning rate reduced every few steps");
static const ru_conf_table cosine_table =
    RU_TABLE("cosine", ru_job_curve, cosine_fields, "cosine decay over the run");
static const ru_conf_table linear_table =
    RU_TABLE("linear", ru_job_curve, linear_fields, "linear decay over the run");
static const ru_conf_table one_cycle_table =
    RU_TABLE("one_cycle", ru_job_curve, one_cycle_fields,
             "one cosine rise to lr and one cosine decay over the run");

static const ru_conf_field schedule_fields[] = {
    RU_ROW(SECTION, ru_job_schedule, constant, NULL, "constant learning rate",
           .table = &constant_table),
    RU_ROW(SECTION, ru_job_schedule, step, NULL, "learning rate reduced every few steps",
           .table = &step_table),
    RU_ROW(SECTION, ru_job_schedule, cosine, NULL, "cosine decay over the run",
           .table = &cosine_table),
    RU_ROW(SECTION, ru_job_schedule, linear, NULL, "linear decay over the run",
           .table = &linear_table),
    RU_ROW(SECTION, ru_job_schedule, one_cycle, NULL,
           "one cosine rise to lr and one cosine decay over the run", .table = &one_cycle_table),
};

const ru_conf_table rui_job_schedule_table =
    RU_TABLE("schedule", ru_job_schedule, schedule_fields, "learning rate schedule",
             .one_of = "constant|step|cosine|linear|one_cycle",
             .which_offset = offsetof(ru_job_schedule, which));

/* -- from the job to the options of the parts -------------------------------------------------- */

ru_optimizer ru_job_optimizer_get(const ru_job *job)
{
    const ru_job_optimizer *o = &job->train.optimizer;
    const struct {
        const ru_job_adam *at;
        ru_optimizer_kind kind;
    } adams[] = {[2] = {&o->adam, RU_OPTIMIZER_ADAM},
                 [3] = {&o->adamw, RU_OPTIMIZER_ADAMW},
                 [6] = {&o->lion, RU_OPTIMIZER_LION},
                 [7] = {&o->lamb, RU_OPTIMIZER_LAMB}};
    const ru_job_adam *a = adams[o->which & 7].at;
    bool matrices = job->train.decay == 1;
    switch (o->which) {
    case 2:
    case 3:
    case 6:
    case 7:
        return (ru_optimizer){.kind = adams[o->which].kind,
                              .lr = a->lr,
                              .beta1 = a->beta1,
                              .beta2 = a->beta2,
                              .epsilon = a->epsilon,
                              .weight_decay = a->weight_decay,
                              .decay_matrices = matrices};
    case 5:
        return (ru_optimizer){.kind = RU_OPTIMIZER_RMSPROP,
                              .lr = o->rmsprop.lr,
                              .alpha = o->rmsprop.alpha,
                              .epsilon = o->rmsprop.epsilon,
                              .momentum = o->rmsprop.momentum,
                              .weight_decay = o->rmsprop.weight_decay,
                              .decay_matrices = matrices};
    case 4:
        return (ru_optimizer){.kind = RU_OPTIMIZER_ADAGRAD,
                              .lr = o->adagrad.lr,
                              .epsilon = o->adagrad.epsilon,
                              .weight_decay = o->adagrad.weight_decay,
                              .decay_matrices = matrices};
    default:
        return (ru_optimizer){.kind = RU_OPTIMIZER_SGD,
                              .lr = o->sgd.lr,
                              .momentum = o->sgd.momentum,
                              .nesterov = o->sgd.nesterov,
                              .weight_decay = o->sgd.weight_decay,
                              .decay_matrices = matrices};
    }
}

ru_schedule ru_job_schedule_get(const ru_job *job, int64_t steps)
{
    const ru_job_schedule *s = &job->train.schedule;
    const ru_job_curve *curves[] = {&s->constant, &s->constant, &s->step,
                                    &s->cosine,   &s->linear,   &s->one_cycle};
    static const ru_schedule_kind kinds[] = {RU_SCHEDULE_CONSTANT, RU_SCHEDULE_CONSTANT,
                                             RU_SCHEDULE_STEP,     RU_SCHEDULE_COSINE,
                                             RU_SCHEDULE_LINEAR,   RU_SCHEDULE_ONE_CYCLE};
    const ru_job_curve *c = curves[s->which];
    return (ru_schedule){.kind = kinds[s->which],
                         .warmup = c->warmup,
                         .every = c->every,
                         .gamma = c->gamma,
                         .floor = c->floor,
                         .start = c->start,
                         .rise = c->rise,
                         .steps = steps};
}
