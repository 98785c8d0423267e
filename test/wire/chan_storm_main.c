/* chan-storm hostile SEED [FRAMES]: test/wire/chan_hostile.h, random and mutated frames.
 * chan-storm scan SEED [STRANGERS] [tls]: test/wire/chan_scan.h, strangers at a real socket, and
 * until the last one is cut off. chan-storm [--events N] [--rounds N] NODES SEED [grants] [crc]
 * [drops] [little] [log]: test/wire/chan_storm.h at length, rounds with seeds SEED, SEED + 1, ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "test/wire/chan_hostile.h"
#include "test/wire/chan_scan.h"
#include "test/wire/chan_storm.h"

static int hostile(int argc, char **argv)
{
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    int64_t frames = argc > 3 ? strtoll(argv[3], NULL, 10) : 20000;
    ru_chan_hostile_report r;
    ru_err err;
    ru_log_set(&(ru_log_options){.level = argc > 4 ? RU_LOG_DEBUG : RU_LOG_OFF});
    if (ru_chan_hostile(seed, frames, NULL, 0, &r, &err) != RU_OK) {
        fprintf(stderr, "%s %lld\n", err.text, (long long)frames);
        return 1;
    }
    printf(
        "seed %llu: %lld frames before the proof, %lld after; refused %lld, honest streams %lld\n",
        (unsigned long long)seed, (long long)r.frames_before, (long long)r.frames_after,
        (long long)r.refused, (long long)r.honest);
    return 0;
}

static int scan(int argc, char **argv)
{
    ru_chan_scan_options opt = {.seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1,
                                .strangers = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 3000,
                                .tls = argc > 4 && strcmp(argv[4], "tls") == 0,
                                .wait = true};
    ru_chan_scan_report r;
    ru_err err;
    if (ru_chan_scan(&opt, &r, &err) != RU_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("seed %llu: %u strangers, %lld refused by the channel, %u lines, %u honest messages\n",
           (unsigned long long)opt.seed, r.connections, (long long)r.refused, r.lines, r.messages);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "scan") == 0) {
        return scan(argc, argv);
    }
    if (argc > 1 && strcmp(argv[1], "hostile") == 0) {
        return hostile(argc, argv);
    }
    ru_chan_storm_options opt = {.events = 10000, .nodes = 3, .seed = 1};
    uint32_t rounds = 1, plain = 0;
    ru_log_set(&(ru_log_options){.level = RU_LOG_ERROR});
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--events") == 0 && i + 1 < argc) {
            opt.events = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            rounds = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "grants") == 0) {
            opt.grants = true;
        } else if (strcmp(argv[i], "crc") == 0) {
            opt.crc = true;
        } else if (strcmp(argv[i], "log") == 0) {
            ru_log_set(&(ru_log_options){.level = RU_LOG_DEBUG});
        } else if (strcmp(argv[i], "drops") == 0) {
            opt.drops = true;
        } else if (strcmp(argv[i], "little") == 0) {
            opt.little = true;
        } else if (plain++ == 0) {
            opt.nodes = (uint32_t)strtoul(argv[i], NULL, 10);
        } else {
            opt.seed = strtoull(argv[i], NULL, 10);
        }
    }
    for (uint32_t k = 0; k < rounds; k++, opt.seed++) {
        ru_chan_storm_report r;
        ru_err err;
        if (ru_chan_storm(&opt, &r, &err) != RU_OK) {
            fprintf(stderr, "%s --events %u\n", err.text, opt.events);
            return 1;
        }
        printf(
            "seed %llu: sent %u arrived %u cancelled %u withdrawn %u lost %u messages %u cuts %u "
            "drops %u preemptions %lld bytes %lld\n",
            (unsigned long long)opt.seed, r.sent, r.arrived, r.cancelled, r.withdrawn, r.lost,
            r.messages, r.cuts, r.drops, (long long)r.preemptions, (long long)r.bytes);
    }
    return 0;
}
