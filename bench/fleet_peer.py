"""Flower's side of `rubato bench fleet`, over gRPC and in its simulation (pip install "flwr[simulation]").

  simulate CLIENTS SAMPLES ROUNDS PER_ROUND   prints rounds per second: the network of the benchmark, one pass over the samples
  serve ADDRESS CERTIFICATES CLIENTS ROUNDS   prints the seconds of each round; CERTIFICATES: folder with ca.pem, server.pem, server.key
  join ADDRESS CERTIFICATES VALUES            a client that sends that many values back; it computes nothing
"""
import os
import sys
import time

import numpy as np

FEATURES, HIDDEN, CLASSES, BATCH, RATE = 16, 32, 4, 32, 0.05


def train(p, x, y):
    """One pass of gradient descent, as a client of the benchmark does it."""
    w1, b1, w2, b2 = (v.copy() for v in p)
    for at in range(0, len(x), BATCH):
        a, t = x[at : at + BATCH], y[at : at + BATCH]
        h = np.maximum(a @ w1 + b1, 0)
        z = h @ w2 + b2
        z = np.exp(z - z.max(1, keepdims=True))
        z /= z.sum(1, keepdims=True)
        z[np.arange(len(t)), t] -= 1
        z *= RATE / len(t)
        back = (z @ w2.T) * (h > 0)
        w2 -= h.T @ z
        b2 -= z.sum(0)
        w1 -= a.T @ back
        b1 -= back.sum(0)
    return [w1, b1, w2, b2]


def simulate(clients, samples, rounds, per_round):
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    rng = np.random.default_rng(1)
    y = rng.integers(0, CLASSES, 20000)
    x = (rng.normal(size=(20000, FEATURES)) + 3 * np.eye(FEATURES)[y]).astype(np.float32)
    shapes = [(FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
    first = [(rng.normal(size=s) * 0.1).astype(np.float32) for s in shapes]

    class Client(NumPyClient):
        def __init__(self, number):
            self.own = (number * samples + np.arange(samples)) % len(x)

        def fit(self, parameters, config):
            return train(parameters, x[self.own], y[self.own]), samples, {}

    ends = []

    def look(number, parameters, config):  # behind each round
        ends.append(time.monotonic())
        return None

    def server(context):
        strategy = FedAvg(
            fraction_fit=per_round / clients,
            min_fit_clients=per_round,
            min_available_clients=clients,
            fraction_evaluate=0,
            initial_parameters=ndarrays_to_parameters(first),
            evaluate_fn=look,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    run_simulation(
        ServerApp(server_fn=server),
        ClientApp(client_fn=lambda context: Client(int(context.node_config["partition-id"])).to_client()),
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
    )
    # The first round starts the workers; ends[0] is before it.
    print("rounds/s", (len(ends) - 2) / (ends[-1] - ends[1]), flush=True)


def certificate(folder, name):
    with open(os.path.join(folder, name), "rb") as f:
        return f.read()


def serve(address, folder, clients, rounds):
    from flwr.compat.server.app import start_server
    from flwr.server import ServerConfig
    from flwr.server.strategy import FedAvg

    begun = [0.0]

    def look(number, parameters, config):
        now = time.monotonic()
        if number > 0:
            print("round", now - begun[0], flush=True)
        begun[0] = now
        return None

    strategy = FedAvg(
        fraction_fit=1, min_fit_clients=clients, min_available_clients=clients, fraction_evaluate=0, evaluate_fn=look
    )
    start_server(
        server_address=address,
        config=ServerConfig(num_rounds=rounds),
        strategy=strategy,
        certificates=tuple(certificate(folder, n) for n in ("ca.pem", "server.pem", "server.key")),
    )


def join(address, folder, values):
    from flwr.client import NumPyClient
    from flwr.compat.client.app import start_client

    class Client(NumPyClient):
        def get_parameters(self, config):
            return [np.zeros(values, np.float32)]

        def fit(self, parameters, config):
            return parameters, 100, {}

    start_client(
        server_address=address, client=Client().to_client(), root_certificates=certificate(folder, "ca.pem"), transport="grpc-bidi"
    )


if __name__ == "__main__":
    words = sys.argv[2:]
    if sys.argv[1] == "simulate":
        simulate(*map(int, words))
    elif sys.argv[1] == "serve":
        serve(words[0], words[1], int(words[2]), int(words[3]))
    else:
        join(words[0], words[1], int(words[2]))
