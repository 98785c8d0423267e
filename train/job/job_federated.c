/* The section `federated` of a job. */
#include "plan/fleet/pick.h"
#include "train/job/job.h"
#include "train/job/job_impl.h"

static const ru_conf_field privacy_fields[] = {
    RU_ROW(F64, ru_job_privacy, clip, "0",
           "the move of a client's parameters in a round is scaled down to this length, and all "
           "clients count alike; 0: moves are as they come",
           RU_IN(0, 1e12)),
    RU_ROW(F64, ru_job_privacy, noise, "0",
           "deviation of the normal noise on each value of the sum of moves, in units of clip; 0: "
           "none",
           RU_IN(0, 1e6)),
    RU_ROW(F64, ru_job_privacy, delta, "1e-5",
           "chance for which epsilon need not hold; less than one over the number of clients",
           RU_OVER(0, 0.5)),
    RU_ROW(F64, ru_job_privacy, epsilon, "0",
           "the job ends before the epsilon of all its rounds exceeds this; 0: it is told only",
           RU_IN(0, 1e6)),
};

static const ru_conf_table privacy_table =
    RU_TABLE("privacy", ru_job_privacy, privacy_fields, "differential privacy of clients");

static const ru_conf_field secure_fields[] = {
    RU_ROW(U32, ru_job_secure, threshold, "0",
           "clients of a round that are needed to open the sum of its updates, more than half of "
           "per_round, or of a client and its neighbours; 0: the server sees each update",
           RU_IN(0, RU_PICK_ROUND_MAX)),
    RU_ROW(U32, ru_job_secure, neighbours, "0",
           "clients with which each of a round shares masks, an even number, drawn for the round; "
           "0: all. So many that collude or are lost may show part of a sum",
           RU_IN(0, RU_PICK_ROUND_MAX)),
    RU_ROW(F64, ru_job_secure, range, "16",
           "largest move of one value in a round, without privacy.clip; values are kept to one "
           "part in 2^31 of it",
           RU_OVER(0, 1e12)),
    RU_ROW_AS("wait", TIME, ru_job_secure, wait_ns, "0s",
              "time in which clients answer while keys are exchanged and the sum is opened; 0s: "
              "by their number and by what earlier answers took",
              RU_IN(0, 3.6e12)),
};

static const ru_conf_table secure_table =
    RU_TABLE("secure", ru_job_secure, secure_fields, "secure aggregation");

static const ru_conf_field fields[] = {
    RU_ROW(I64, ru_job_federated, rounds, "0",
           "`rubato fed`: number of rounds; a round is one step of the run", RU_IN(0, 1e9)),
    RU_ROW(U32, ru_job_federated, per_round, "10", "clients that train in a round",
           RU_IN(1, RU_PICK_ROUND_MAX)),
    RU_ROW(U32, ru_job_federated, clients_min, "0",
           "the first round begins when so many clients are there, and at least per_round; 0: "
           "per_round, or tiers if that is more",
           RU_IN(0, 1 << 20)),
    RU_ROW(U32, ru_job_federated, clients_max, "1000",
           "clients that there may be, whenever they come", RU_IN(1, 1 << 20)),
    RU_ROW(U32, ru_job_federated, answers_min, "1",
           "a round with fewer answers before its deadline is begun again", RU_IN(1, 1024)),
    RU_ROW(CHOICE, ru_job_federated, method, "adaptive",
           "how the clients of a round are chosen (docs/policies/pick.md)",
           .choices = "adaptive|tifl|vanilla|over|fedcs|oort|choice|uniform|random|fast|slow"),
    RU_ROW(U32, ru_job_federated, tiers, "5",
           "groups of clients by the time they take; methods without tiers need 1",
           RU_IN(1, RU_PICK_TIERS_MAX)),
    RU_ROW(U32, ru_job_federated, interval, "20",
           "rounds between two looks at the accuracy of each tier", RU_IN(1, 1 << 20)),
    RU_ROW(U32, ru_job_federated, profiles, "1",
           "tasks by which the time of a new client is measured", RU_IN(1, 100)),
    RU_ROW(U32, ru_job_federated, at_once, "100", "new clients that are measured at one time",
           RU_IN(1, 1 << 20)),
    RU_ROW_AS("profile_wait", TIME, ru_job_federated, profile_wait_ns, "60s",
              "a new client that takes longer counts as late", RU_IN(1e6, 8.64e13)),
    RU_ROW_AS("deadline", TIME, ru_job_federated, deadline_ns, "0s",
              "end of a round after its begin; 0s: one and a half times the slowest answer that is "
              "expected. It may be another one after --resume",
              RU_IN(0, 8.64e14)),
    RU_ROW(I64, ru_job_federated, epochs, "1", "passes of a client over its samples in a round",
           RU_IN(1, 1e6)),
    RU_ROW(F64, ru_job_federated, prox, "0",
           "FedProx: each client's loss grows by half of this times the squared distance of its "
           "parameters from those it was sent",
           RU_IN(0, 1e6)),
    RU_ROW(CHOICE, ru_job_federated, sum, "mean",
           "how the updates of a round become one: mean, by samples; trimmed or median of each "
           "value, which withstand updates that are far off",
           .choices = "mean|trimmed|median"),
    RU_ROW(F64, ru_job_federated, trim, "0.1",
           "trimmed: part of the updates that is left out at each end", RU_IN(0, 0.49)),
    RU_ROW(CHOICE, ru_job_federated, optimizer, "average",
           "what the server does with the mean: take it, or move towards it with momentum or Adam",
           .choices = "average|momentum|adam"),
    RU_ROW(F64, ru_job_federated, lr, "1", "momentum, adam: rate of the server", RU_OVER(0, 1e6)),
    RU_ROW(F64, ru_job_federated, beta1, "0.9", "momentum, adam: decay of the mean move",
           RU_IN(0, 0.9999999)),
    RU_ROW(F64, ru_job_federated, beta2, "0.99", "adam: decay of its square", RU_IN(0, 0.9999999)),
    RU_ROW(F64, ru_job_federated, epsilon, "0.001", "adam: added to the root of the mean square",
           RU_OVER(0, 1)),
    RU_ROW(I64, ru_job_federated, eval_every, "1",
           "rounds between two evaluations on the test data of the job", RU_IN(1, 1e9)),
    RU_ROW(SECTION, ru_job_federated, privacy, "{}",
           "the model does not depend much on any one client (docs/fleet.md)",
           .table = &privacy_table),
    RU_ROW(SECTION, ru_job_federated, secure, "{}",
           "updates are masked: the server learns their sum alone (docs/fleet.md)",
           .table = &secure_table),
};

static ru_status check_secure(const ru_job_federated *f, ru_err *err)
{
    uint32_t n = f->secure.threshold, near = f->secure.neighbours;
    if (near > 0 && (near % 2 > 0 || n <= near / 2 + 1 || n > near + 1 || n > f->per_round)) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "'secure' has a threshold of %u and %u neighbours, in rounds of %u; expected "
            "an even number of them, and a threshold from %u to %u that a round has",
            n, near, f->per_round, near / 2 + 2, near + 1);
    }
    if (n > 0 && near == 0 && (n < 2 || n > f->per_round || 2 * n <= f->per_round)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'secure' has a threshold of %u; a round of %u clients needs more than half "
                       "of them and at least 2",
                       n, f->per_round);
    }
    if (n > 0 && f->sum != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'secure' shows the server the sum of updates, of which 'sum' has no median "
                       "and no trimmed mean; leave out one of them");
    }
    return n == 0 || (f->method != RU_PICK_OVER && f->method != RU_PICK_FEDCS)
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "'secure' needs a 'method' whose rounds have per_round clients; over and "
                         "fedcs have more or fewer");
}

/* Settings that do not go together. */
static ru_status check(const void *section, ru_err *err)
{
    const ru_job_federated *f = section;
    const ru_job_privacy *p = &f->privacy;
    RU_TRY(check_secure(f, err));
    if ((p->noise > 0 && !(p->clip > 0)) || (p->epsilon > 0 && !(p->noise > 0))) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'privacy' has %s, but no %s, without which nothing is promised",
                       p->noise > 0 ? "noise" : "epsilon", p->noise > 0 ? "clip" : "noise");
    }
    if (p->noise > 0 && p->noise < 0.1) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'privacy' has noise of %g, but below 0.1 it hides nothing", p->noise);
    }
    if (p->clip > 0 && f->sum != 0) {
        return RU_FAIL(err, RU_E_CONFIG, "'privacy' bounds a mean only; leave out 'sum'");
    }
    if (p->noise > 0 && (f->method == RU_PICK_OORT || f->method == RU_PICK_CHOICE)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'method' chooses clients by their losses, which 'privacy' does not cover; "
                       "set vanilla, over, fedcs, or one with tiers");
    }
    return RU_OK;
}

const ru_conf_table rui_job_federated_table = RU_TABLE(
    "federated", ru_job_federated, fields, "rounds of clients (docs/fleet.md)", .check = check);
