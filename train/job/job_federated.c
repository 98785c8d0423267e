/* The section `federated` of a job. */
#include "plan/fleet/pick.h"
#include "train/job/job.h"
#include "train/job/job_impl.h"

static const ru_conf_field fields[] = {
    RU_ROW(I64, ru_job_federated, rounds, "0",
           "`rubato fed`: number of rounds; a round is one step of the run", RU_IN(0, 1e9)),
    RU_ROW(U32, ru_job_federated, per_round, "10", "clients that train in a round",
           RU_IN(1, RU_PICK_ROUND_MAX)),
    RU_ROW(U32, ru_job_federated, clients_min, "0",
           "the first round begins when so many clients are there; 0: per_round, or tiers if that "
           "is more",
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
};

const ru_conf_table rui_job_federated_table =
    RU_TABLE("federated", ru_job_federated, fields, "rounds of clients (docs/fleet.md)");
