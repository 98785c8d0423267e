"""What a fleet needs for a trial. `serve CPU_S`: one machine, at port PORT + $RUBATO_INSTANCE. `spread NOW`: when all machines of
$RUBATO_FLEET answer, NOW is that file. `load NOW LOG RATES HOUR_S`: a day of requests at a rate of their own, over the machines of NOW
by their rates; a line of seconds in LOG for each."""
import http.client
import http.server
import os
import random
import shutil
import sys
import threading
import time

PORT = int(os.environ.get("PORT", "28000"))


class Machine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        if self.path == "/work":
            end = time.thread_time() + float(sys.argv[2])
            while time.thread_time() < end:
                pass
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve():
    http.server.ThreadingHTTPServer.request_queue_size = 128
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT + int(os.environ["RUBATO_INSTANCE"])), Machine).serve_forever()


def machines(path):
    with open(path) as f:
        return [(int(line.split()[0]), float(line.split()[2])) for line in f]


def spread():
    for number, _ in machines(os.environ["RUBATO_FLEET"]):
        c = http.client.HTTPConnection("127.0.0.1", PORT + number, timeout=20)
        c.request("GET", "/")
        c.getresponse()
    shutil.copy(os.environ["RUBATO_FLEET"], sys.argv[2] + ".new")
    os.rename(sys.argv[2] + ".new", sys.argv[2])


def load():
    now, log = sys.argv[2], open(sys.argv[3], "w")
    rates = [float(x) for x in open(sys.argv[4])]
    hour_s, began, at, lock = float(sys.argv[5]), time.monotonic(), 0.0, threading.Lock()
    draw = random.Random(1)

    def run():
        nonlocal at
        open_to = {}
        while True:
            with lock:
                mine = at
                if max(mine, time.monotonic() - began) >= hour_s * len(rates):
                    return  # what has not been sent by then is not sent
                at += draw.expovariate(max(rates[int(mine / hour_s)], 1e-3))
            time.sleep(max(0, began + mine - time.monotonic()))
            all_of = [m for m in machines(now) if m[1] > 0]
            number = random.choices([m[0] for m in all_of], [m[1] for m in all_of])[0]
            for again in range(3):
                try:
                    c = open_to.setdefault(number, http.client.HTTPConnection("127.0.0.1", PORT + number, timeout=20))
                    c.request("GET", "/work")
                    c.getresponse().read()
                    break
                except (OSError, http.client.HTTPException):
                    open_to.pop(number, None)
            with lock:
                log.write(f"{time.monotonic() - began - mine:.6f}\n")
                log.flush()

    threads = [threading.Thread(target=run) for _ in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


{"serve": serve, "spread": spread, "load": load}[sys.argv[1]]()
