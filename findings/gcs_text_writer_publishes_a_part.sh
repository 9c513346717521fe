#!/usr/bin/env bash
# google-cloud-storage 3.17.1: an exception within `with blob.open(...)`.
#
# One would guess that text and bytes are alike: `open("wb")` ends the upload when the block fails, and no object
# appears.
#
# Seen: of `open("w")` the object appears with what was written so far: half a file under its final name, which a
# reader takes for the whole.
#
# For writers of lines: encode them and open with "wb".
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet google-cloud-storage==3.17.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import google_crc32c
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

objects, uploads = {}, {}


class Store(BaseHTTPRequestHandler):
    """What of the JSON API's resumable uploads these calls need."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = parse_qs(urlparse(self.path).query)
        code, headers, reply = 200, {}, {"name": "bucket"}
        if self.command == "POST":
            name = json.loads(body)["name"]
            uploads[name] = b""
            headers["Location"] = f"http://127.0.0.1:{self.server.server_port}/upload?name={name}"
        elif self.command == "PUT":
            name = query["name"][0]
            uploads[name] += body
            if self.headers["Content-Range"].endswith("/*"):
                code, reply = 308, None
                headers["Range"] = f"bytes=0-{len(uploads[name]) - 1}"
            else:
                objects[name] = uploads[name]
                checksum = base64.b64encode(google_crc32c.Checksum(objects[name]).digest()).decode()
                reply = {"name": name, "bucket": "bucket", "size": str(len(objects[name])), "crc32c": checksum}
        data = b"" if reply is None else json.dumps(reply).encode()
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(len(data)), "Content-Type": "application/json"}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    do_DELETE = do_GET = do_POST = do_PUT = answer


server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
threading.Thread(target=server.serve_forever, daemon=True).start()
options = {"api_endpoint": f"http://127.0.0.1:{server.server_port}"}
bucket = storage.Client(project="p", credentials=AnonymousCredentials(), client_options=options).bucket("bucket")
for mode, line in (("wb", b"one\n"), ("w", "one\n")):
    try:
        with bucket.blob(f"opened with {mode}").open(mode) as file:
            file.write(line)
            raise KeyError("the second line cannot be made")
    except KeyError:
        pass
seen = sorted(objects.items())
expected = [("opened with w", b"one\n")]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
