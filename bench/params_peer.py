"""A peer of `rubato bench params`: one program of matrix factorisation or topics behind a line protocol.

    params_peer.py --side libmf|surprise|cornac|tomotopy|lda --dir DIR --rank N --threads N

DIR holds train.csv and test.csv (ratings) or train.svm and test.svm (documents). It prints a line of JSON
when ready, then answers: "run K" -> "SECONDS OBJECTIVE" of K passes from the start; "rss"; "quit". The
objective is the error of the test ratings, or the perplexity of every second word of the test documents
given the others, with the mixtures found by 50 steps of expectation and maximisation. Before its first answer
surprise and cornac look for the learning rate of RATES with the best objective after K passes, since ours is
chosen for these data too; that is not timed.
"""
import argparse
import json
import os
import resource
import sys
import time

import numpy as np


RATES = (0.01, 0.02, 0.04)


def with_best_rate(run):
    """run(k, rate) -> run(k) with the rate that is best for the first k"""
    best = []

    def tuned(k):
        if not best:
            best.append(min(RATES, key=lambda rate: run(k, rate)[1]))
        return run(k, best[0])

    return tuned


def ratings(path):
    return np.loadtxt(path, delimiter=",", skiprows=1)


def documents(path):
    docs = []
    for line in open(path):
        pairs = [item.split(":") for item in line.split()[1:]]
        docs.append([(int(w) - 1, int(float(c))) for w, c in pairs])
    return docs


def perplexity(phi, alpha, docs):
    """phi [topics, words]"""
    total, words = 0.0, 0
    for doc in docs:
        at, first, second = 0, [], []
        for w, c in doc:
            used = (at + c + 1) // 2 - (at + 1) // 2
            first.append(used)
            second.append(c - used)
            at += c
        p = phi[:, [w for w, _ in doc]]
        first, second = np.array(first), np.array(second)
        mix = np.full(len(phi), 1.0 / len(phi))
        for _ in range(50):
            mix = alpha + mix * (p @ (first / (mix @ p)))
            mix /= mix.sum()
        total += second @ np.log(mix @ p)
        words += second.sum()
    return float(np.exp(-total / words))


def libmf(args):
    sys.stdout = sys.stderr  # the package talks when it is imported
    from libmf import mf
    sys.stdout = sys.__stdout__
    train, test = ratings(args.dir + "/train.csv"), ratings(args.dir + "/test.csv")
    mean = train[:, 2].mean()
    train[:, 2] -= mean

    def run(k):
        m = mf.MF(k=args.rank, nr_iters=k, nr_threads=args.threads, nr_bins=26, eta=0.1, quiet=True,
                  lambda_p1=0.0, lambda_q1=0.0, lambda_p2=0.03, lambda_q2=0.03)
        t0 = time.perf_counter()
        m.fit(train)
        seconds = time.perf_counter() - t0
        return seconds, float(np.sqrt(np.mean((m.predict(test[:, :2]) + mean - test[:, 2]) ** 2)))

    return run, "libmf"


def surprise(args):
    import surprise as s
    train, test = ratings(args.dir + "/train.csv"), ratings(args.dir + "/test.csv")
    triples = [(int(u), int(i), r, None) for u, i, r in train]
    data = s.Dataset(s.Reader(rating_scale=(-100, 100)))
    full = data.construct_trainset(triples)

    def run(k, rate):
        m = s.SVD(n_factors=args.rank, n_epochs=k, lr_all=rate, reg_all=0.03, random_state=1)
        t0 = time.perf_counter()
        m.fit(full)
        seconds = time.perf_counter() - t0
        e = [m.predict(int(u), int(i)).est - r for u, i, r in test]
        return seconds, float(np.sqrt(np.mean(np.square(e))))

    return with_best_rate(run), "surprise " + s.__version__


def cornac(args):
    import cornac as c
    train, test = ratings(args.dir + "/train.csv"), ratings(args.dir + "/test.csv")
    data = c.data.Dataset.from_uir([(int(u), int(i), r) for u, i, r in train], seed=1)
    users = np.array([data.uid_map.get(int(u), -1) for u in test[:, 0]])
    items = np.array([data.iid_map.get(int(i), -1) for i in test[:, 1]])
    has_user, has_item = users >= 0, items >= 0

    def run(k, rate):
        m = c.models.MF(k=args.rank, max_iter=k, learning_rate=rate, lambda_reg=0.03, use_bias=True,
                        early_stop=False, num_threads=args.threads, verbose=False, seed=1)
        t0 = time.perf_counter()
        m.fit(data)
        seconds = time.perf_counter() - t0
        y = m.global_mean + has_user * m.u_biases[users] + has_item * m.i_biases[items]
        y += has_user * has_item * np.sum(m.u_factors[users] * m.i_factors[items], axis=1)
        return seconds, float(np.sqrt(np.mean((y - test[:, 2]) ** 2)))

    return with_best_rate(run), "cornac " + c.__version__


def tomotopy(args):
    import tomotopy as tp
    train, test = documents(args.dir + "/train.svm"), documents(args.dir + "/test.svm")
    vocab = 1 + max(w for doc in train + test for w, _ in doc)

    def run(k):
        m = tp.LDAModel(k=args.rank, alpha=0.1, eta=0.01, seed=1)
        m.optim_interval = 0
        for doc in train:
            m.add_doc([str(w) for w, c in doc for _ in range(c)])
        m.train(0)
        t0 = time.perf_counter()
        m.train(k, workers=args.threads)
        seconds = time.perf_counter() - t0
        phi = np.full((args.rank, vocab), 1e-9)
        where = [int(w) for w in m.used_vocabs]
        for t in range(args.rank):
            phi[t, where] = m.get_topic_word_dist(t)
        return seconds, perplexity(phi, 0.1, test)

    return run, f"tomotopy {tp.__version__} {tp.isa}"


def lda(args):
    import logging

    import lda as program
    logging.getLogger("lda").setLevel(logging.WARNING)
    train, test = documents(args.dir + "/train.svm"), documents(args.dir + "/test.svm")
    vocab = 1 + max(w for doc in train + test for w, _ in doc)
    x = np.zeros((len(train), vocab), dtype=np.int64)
    for d, doc in enumerate(train):
        for w, c in doc:
            x[d, w] = c

    def run(k):
        m = program.LDA(n_topics=args.rank, n_iter=k, alpha=0.1, eta=0.01, random_state=1, refresh=10 ** 9)
        t0 = time.perf_counter()
        m.fit(x)
        return time.perf_counter() - t0, perplexity(np.asarray(m.topic_word_), 0.1, test)

    return run, "lda " + getattr(program, "__version__", "")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--side", choices=["libmf", "surprise", "cornac", "tomotopy", "lda"])
    p.add_argument("--dir")
    p.add_argument("--rank", type=int)
    p.add_argument("--threads", type=int)
    args = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    try:
        run, detail = globals()[args.side](args)
    except Exception as e:  # said to the caller, who goes on without this peer
        print(json.dumps({"ready": False, "why": f"{type(e).__name__}: {e}"}), flush=True)
        return
    print(json.dumps({"ready": True, "detail": detail}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "run":
            print("%.9f %.9f" % run(int(words[1])), flush=True)
        elif words[0] == "rss":
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
        else:
            return


if __name__ == "__main__":
    main()
