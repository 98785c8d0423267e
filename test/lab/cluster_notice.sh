#!/bin/bash
# Nodes that a cloud takes away: cluster_notice.sh PATH_OF_RUBATO. A server speaks as the metadata of AWS (IMDSv2: without a
# token nothing is told) and of GCP do. At a notice the workers move in place, the agent ends, no sample is lost.
. "$(dirname "$0")/clusters.sh"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
server=
leaves() { [[ -z $server ]] || kill "$server" 2>/dev/null || true; }
cat >metadata.py <<'PYTHON'
import http.server, os, time
class Metadata(http.server.BaseHTTPRequestHandler):
    def answer(self, code, text):
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_PUT(self):
        fine = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self.answer(200 if fine else 400, "secret-of-aws" if fine else "")
    def do_GET(self):
        if self.path == "/latest/meta-data/spot/instance-action":
            if self.headers.get("X-aws-ec2-metadata-token") != "secret-of-aws":
                self.answer(401, "")
            elif os.path.exists("aws"):
                self.answer(200, '{"action": "terminate", "time": "2030-01-01T00:00:00Z"}')
            else:
                self.answer(404, "")
        elif self.path.startswith("/computeMetadata/v1/instance/preempted?wait_for_change=true"):
            if self.headers.get("Metadata-Flavor") != "Google":
                self.answer(403, "")
                return
            for _ in range(20):
                if os.path.exists("gcp"):
                    break
                time.sleep(0.1)
            self.answer(200, "TRUE" if os.path.exists("gcp") else "FALSE")
        else:
            self.answer(404, "")
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
open("port.new", "w").write(str(server.server_port))
os.rename("port.new", "port")
server.serve_forever()
PYTHON
python3 metadata.py &
server=$!
for ((k = 0; k < 6000; k++)); do [[ ! -e port ]] || break; sleep 0.05; done
url=http://127.0.0.1:$(cat port)
on() { cluster nodes | awk -v n="$1" '$1 == n { print $4, $5 }'; } # NODE: processes and state
cat >mlp.yaml <<JOB
name: spot
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 1000000, autotune: false, threads: 1}
JOB
cat >cluster.yaml <<FILE
folder: cl
nodes:
  - {name: own, slots: 2}
  - {name: spot1, slots: 2, notice: aws, notice_url: "$url"}
  - {name: spot2, slots: 2, notice: gcp, notice_url: "$url"}
FILE
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up"
cluster drain own >/dev/null
cluster drain spot2 >/dev/null
cluster submit mlp.yaml -w 2 >/dev/null
waits_for 2 field 1 workers
waits_for '2 up' on spot1
cluster drain spot2 --resume >/dev/null
touch aws
waits_for '2 up' on spot2
waits_for '0 lost' on spot1
ended() { ! grep -qs '^State:.[^Z]' "/proc/$(pid_of "cl/run/$1.pid")/status" && echo yes; }
waits_for yes ended spot1
cluster drain own --resume >/dev/null
touch gcp
waits_for '2 up' on own
waits_for '0 lost' on spot2
waits_for yes ended spot2
[[ $(field 1 generation) == 1 ]] || fail "the job was started again"
rm aws gcp
cluster up cluster.yaml >/dev/null || fail "nodes do not come back"
waits_for '0 up' on spot1
cluster cancel 1 >/dev/null
waits_for cancelled field 1 state
grep '"rubato.train.step/1"' cl/jobs/1/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/' >steps
[[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] || fail "the job did not do each step once"
grep -q '"samples_lost":0,"samples_repeated":0' cl/jobs/1/metrics.jsonl || fail "lost samples, or no summary: $(tail -n 2 cl/jobs/1/metrics.jsonl cl/jobs/1/tell.* cl/log/*)"
if grep -h 'cannot ask for notices' cl/log/* | grep -v 'Timeout was reached'; then fail "the metadata were not understood"; fi
cluster down
[[ $failed -ne 0 ]] || echo "ok: nodes that a cloud takes away"
exit $failed
