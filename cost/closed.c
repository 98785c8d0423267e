#include "cost/closed.h"

ru_queue_mean ru_queue_closed(const ru_station *s, uint32_t n, uint32_t clients, double think_s)
{
    ru_queue_mean m = {0};
    double queue[RU_STATIONS_MAX] = {0};
    for (uint32_t k = 1; k <= clients; k++) {
        double all = think_s;
        for (uint32_t i = 0; i < n; i++) {
            double fast = s[i].service_s / s[i].servers;
            m.time_s[i] = s[i].service_s + fast * queue[i];
            all += m.time_s[i];
        }
        m.rate = k / all;
        for (uint32_t i = 0; i < n; i++) {
            double fast = s[i].service_s / s[i].servers;
            queue[i] = m.rate * fast * (1 + queue[i]);
        }
    }
    return m;
}

bool ru_queue_open(const ru_station *s, uint32_t n, double rate, ru_queue_mean *out)
{
    *out = (ru_queue_mean){.rate = rate};
    for (uint32_t i = 0; i < n; i++) {
        double fast = s[i].service_s / s[i].servers, busy = rate * fast;
        if (busy >= 1) {
            return false;
        }
        out->time_s[i] = s[i].service_s + fast * busy / (1 - busy);
    }
    return true;
}
