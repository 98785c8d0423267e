"""A function platform with Lambda's two sides: Invoke in front, the runtime API behind.

lambda.py PROGRAM [ARG...]: prints "PORT", where Invoke listens. A call that finds no instance free starts
PROGRAM with AWS_LAMBDA_RUNTIME_API, which has an address of its own for each instance, and with
AWS_LAMBDA_FUNCTION_MEMORY_SIZE=1000. SIGTERM ends all instances. Answers to calls that the instance does not have
are refused with 400. Prints to stderr, at the end, how many instances and calls there were, and how many answers were refused.
"""
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIFE_S = 900
program, free, all_of_them, lock = sys.argv[1:], [], [], threading.Lock()
counts = {"calls": 0, "refused": 0, "failed": 0}


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def say(self, status, body=b"{}", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Instance:
    def __init__(self):
        self.inbox, self.outbox, self.id = queue.Queue(), queue.Queue(), None
        instance = self

        class Runtime(Quiet):
            def do_GET(self):
                if self.path != "/2018-06-01/runtime/invocation/next":
                    return self.say(404)
                instance.id, event = instance.inbox.get()
                self.say(200, event, Lambda_Runtime_Aws_Request_Id=instance.id,
                         Lambda_Runtime_Deadline_Ms=str(int((time.time() + LIFE_S) * 1000)))

            def do_POST(self):
                body, part = self.body(), self.path.split("/")
                if self.path == "/2018-06-01/runtime/init/error":
                    instance.outbox.put(("init", body))
                    return self.say(202)
                if part[:4] != ["", "2018-06-01", "runtime", "invocation"] or part[4] != instance.id:
                    counts["refused"] += 1
                    return self.say(400)
                json.loads(body)
                instance.id = None
                self.say(202)
                instance.outbox.put((part[5], body))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Runtime)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.process = subprocess.Popen(program, env=dict(
            os.environ, AWS_LAMBDA_RUNTIME_API="127.0.0.1:%d" % self.server.server_port,
            AWS_LAMBDA_FUNCTION_MEMORY_SIZE="1000"))
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        code = self.process.wait()
        self.outbox.put(("died", json.dumps({"errorMessage": "the program ended with %d" % code}).encode()))


class Invoke(Quiet):
    def do_POST(self):
        event = self.body()
        if not self.path.startswith("/2015-03-31/functions/"):
            return self.say(404)
        with lock:
            counts["calls"] += 1
            instance = free.pop() if free else None
        if instance is None:
            instance = Instance()
            all_of_them.append(instance)
        instance.inbox.put((str(uuid.uuid4()), event))
        kind, answer = instance.outbox.get()
        if kind in ("response", "error"):
            with lock:
                free.append(instance)
        if kind == "response":
            return self.say(200, answer)
        counts["failed"] += 1
        return self.say(200, answer, X_Amz_Function_Error="Unhandled")


def end(*_):
    for i in all_of_them:
        i.process.terminate()
    codes = [i.process.wait() for i in all_of_them]
    print("instances %d ends %s calls %d failed %d refused %d" % (
        len(all_of_them), codes, counts["calls"], counts["failed"], counts["refused"]), file=sys.stderr, flush=True)
    os._exit(0)


signal.signal(signal.SIGTERM, end)
front = ThreadingHTTPServer(("127.0.0.1", 0), Invoke)
front.daemon_threads = True
print(front.server_port, flush=True)
front.serve_forever()
