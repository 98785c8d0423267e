"""Many submissions at once: submissions.py FOLDER JOB.yaml COUNT CONNECTIONS. Prints the number of each job that was answered; how
long it took goes to standard error. A connection that breaks is opened again: what it had asked is not known, and is asked anew."""
import http.client
import json
import sys
import threading
import time

folder, yaml, count, connections = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
key = open(folder + "/keys/admin").read().strip()
body = json.dumps({"name": "many", "yaml": open(yaml).read()})
left, lock = count, threading.Lock()


def ask():
    global left
    c = None
    while True:
        with lock:
            if left == 0:
                return
            left -= 1
        for _ in range(600):
            try:
                if c is None:
                    c = http.client.HTTPConnection(open(folder + "/http").read().strip())
                c.request("POST", "/jobs", body, {"Authorization": "Bearer " + key})
                answer = c.getresponse()
                text = answer.read().decode()
                if answer.status == 200:
                    break
                raise OSError(text)
            except (OSError, http.client.HTTPException):
                c = None
                time.sleep(0.1)
        else:
            sys.exit("no answer")
        print(text, end="", flush=True)


began = time.monotonic()
threads = [threading.Thread(target=ask) for _ in range(connections)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(f"{count} submissions by {connections} connections: {time.monotonic() - began:.2f} s", file=sys.stderr)
