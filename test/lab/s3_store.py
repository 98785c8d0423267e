"""A small store that speaks S3: PUT, ranges of GET, lists, DELETE, multipart uploads; it checks signatures.

    s3_store.py [busy=N] [cut=N] [page=N] [has=KEY]      prints its port
        busy: each N-th request is answered 503 or 500; cut: each N-th PUT loses its connection half-way;
        page: objects of a page of lists; has: an object of that key, and an upload of it that somebody began
    GET /_log gives the requests so far, GET /_keys the objects, GET /_uploads the uploads that have no end.
    PUT /_objects/KEY and DELETE /_objects/KEY change an object without a signature, a second later each time;
    GET /_away?lists, ?objects or ? (nothing): from now on these requests are answered 503;
    ?circle: each page of a list is the first one;
    ?gone, ?shut, ?half, ?drip: objects that are asked for are answered 404 or 403, or half of what is asked for comes
    and the connection ends, or all of it comes in pieces.
"""
import datetime
import hashlib
import hmac
import json
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

OPTIONS = dict(o.split("=") for o in sys.argv[1:])
KEY, SECRET = "someone", "something"
BUSY, CUT = int(OPTIONS.get("busy", 0)), int(OPTIONS.get("cut", 0))
PAGE = int(OPTIONS.get("page", 1000))
QUOTES = {"'": "&#39;", '"': "&#x22;"}  # as stores written in Go send them
lock = threading.Lock()
objects, dates, uploads, log = {}, {}, {}, []
state = {"n": 0, "puts": 0, "away": "", "second": 0}
if "has" in OPTIONS:
    objects[OPTIONS["has"]] = b"x"
    uploads["theirs"] = (OPTIONS["has"], {})


def put(key, body):
    objects[key] = body
    state["second"] += 1
    dates[key] = (datetime.datetime(2026, 11, 30) + datetime.timedelta(seconds=state["second"])).isoformat() + ".000Z"


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **head):
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code):
        self.reply(status, f"<Error><Code>{code}</Code></Error>".encode())

    def signed(self, path, query, body):
        """The signature of version 4, computed here."""
        auth = self.headers.get("Authorization", "")
        if not auth.startswith("AWS4-HMAC-SHA256 "):
            return False
        parts = dict(p.strip().split("=", 1) for p in auth[17:].split(","))
        who, day, region, service, _ = parts["Credential"].split("/")
        names = parts["SignedHeaders"].split(";")
        given = self.headers.get("x-amz-content-sha256", "")
        if any(self.headers.get(n) is None for n in names):
            return False  # signed, but not sent
        if who != KEY or service != "s3" or given != hashlib.sha256(body).hexdigest():
            return False
        lines = "".join(f"{n}:{' '.join(self.headers[n].split())}\n" for n in names)
        query = "&".join(sorted(query.split("&"))) if query else ""
        request = f"{self.command}\n{path}\n{query}\n{lines}\n{';'.join(names)}\n{given}"
        scope = f"{day}/{region}/{service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{self.headers['x-amz-date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = sign(sign(sign(sign(("AWS4" + SECRET).encode(), day), region), service), "aws4_request")
        return hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), parts["Signature"])

    def handle_one(self):
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length", 0))
        with lock:
            state["n"] += 1
            state["puts"] += self.command == "PUT"
            log.append(f"{self.command} {self.path}")
            busy = BUSY and state["n"] % BUSY == 0
            cut = CUT and self.command == "PUT" and state["puts"] % CUT == 0
        if path == "/_log":
            return self.reply(200, "\n".join(log).encode())
        if path == "/_keys":
            return self.reply(200, "\n".join(sorted(objects)).encode())
        if path == "/_uploads":
            return self.reply(200, json.dumps(list(uploads)).encode())
        if path == "/_away":
            state["away"] = query
            return self.reply(200)
        if path.startswith("/_objects/"):
            key, body = urllib.parse.unquote(path[10:]), self.rfile.read(length)
            with lock:
                put(key, body) if self.command == "PUT" else objects.pop(key)
            return self.reply(200)
        if cut:
            self.rfile.read(length // 2)
            self.close_connection = True
            return self.connection.close()
        body = self.rfile.read(length)
        if busy or state["away"] == ("lists" if "list-type" in query else "objects"):
            return self.error(*((500, "InternalError") if state["n"] % 2 else (503, "SlowDown")))
        if not self.signed(path, query, body):
            return self.error(403, "SignatureDoesNotMatch")
        args = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        _, bucket, key = (urllib.parse.unquote(path) + "/").split("/", 2)
        if bucket != "bucket":
            return self.error(404, "NoSuchBucket")
        with lock:
            self.serve(key[:-1], args, body)

    def serve(self, key, args, body):
        tag = '"' + hashlib.md5(body).hexdigest() + '"'
        if "uploads" in args and self.command == "POST":
            name = f"upload-{len(uploads)}+/{state['n']}"
            uploads[name] = (key, {})
            return self.reply(200, f"<R><UploadId>{name}</UploadId></R>".encode())
        if "uploads" in args:
            rows = "".join(f"<Upload><Key>{escape(k)}</Key><UploadId>{escape(u)}</UploadId></Upload>"
                           for u, (k, _) in uploads.items() if k.startswith(args.get("prefix", "")))
            return self.reply(200, f"<R>{rows}</R>".encode())
        if "uploadId" in args:
            if args["uploadId"] not in uploads:
                return self.error(404, "NoSuchUpload")
            _, parts = uploads[args["uploadId"]]
            if self.command == "PUT":
                parts[int(args["partNumber"])] = (tag, body)
                return self.reply(200, ETag=tag)
            if self.command == "POST":
                wanted = body.decode().count("<PartNumber>")
                if wanted != len(parts) or any(t not in body.decode() for t, _ in parts.values()):
                    return self.error(400, "InvalidPart")
                put(key, b"".join(parts[n][1] for n in sorted(parts)))
            del uploads[args["uploadId"]]
            return self.reply(204 if self.command == "DELETE" else 200, b"")
        if "list-type" in args:
            prefix = args.get("prefix", "")
            names = sorted(k for k in objects if k.startswith(prefix))
            if "delimiter" in args:
                names = [k for k in names if args["delimiter"] not in k[len(prefix):]]
            circle = state["away"] == "circle"
            names = [k for k in names if circle or k > args.get("continuation-token", "")]
            rows = "".join(f"<Contents><Key>{escape(k, QUOTES)}</Key><LastModified>{dates.get(k, '')}</LastModified>"
                           f"<ETag>&quot;{hashlib.md5(objects[k]).hexdigest()}&quot;</ETag><Size>{len(objects[k])}</Size>"
                           "</Contents>" for k in names[:PAGE])
            token = "again" if circle else names[PAGE - 1] if len(names) > PAGE else ""
            more = f"<NextContinuationToken>{escape(token, QUOTES)}</NextContinuationToken>"
            return self.reply(200, f"<R>{rows}{more}</R>".encode())
        if self.command == "PUT":
            put(key, body)
            return self.reply(200, ETag=tag)
        if self.command == "DELETE":
            objects.pop(key, None)
            return self.reply(204)
        if key not in objects or state["away"] == "gone":
            return self.error(404, "NoSuchKey")
        if state["away"] == "shut":
            return self.error(403, "AccessDenied")
        data = objects[key]
        first, _, last = self.headers.get("Range", "bytes=0-")[6:].partition("-")
        end = min(int(last or len(data) - 1), len(data) - 1)
        part = data[int(first):end + 1]
        tag = '"' + hashlib.md5(data).hexdigest() + '"'
        self.send_response(206)
        for name, value in {"ETag": tag, "Content-Range": f"bytes {first}-{end}/{len(data)}", "Content-Length": str(len(part))}.items():
            self.send_header(name, value)
        self.end_headers()
        pieces = 8 if state["away"] == "drip" else 1
        most = (len(part) + 1) // 2 if state["away"] == "half" and len(part) > 1 else len(part)
        for k in range(pieces):
            self.wfile.write(part[most * k // pieces:most * (k + 1) // pieces])
            self.wfile.flush()
            time.sleep(0.02 if pieces > 1 else 0)
        if most < len(part):
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = handle_one


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
