"""In a network namespace of its own: the service at 169.254.170.2 that gives a container its credentials, and S3. Prints what they got.

    unshare --map-root-user --net container_worker.py PROGRAM FILE
"""

import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

SERVICE, STORE = ("169.254.170.2", 80), ("127.0.0.1", 9000)
program, file = sys.argv[1], Path(sys.argv[2]).read_bytes()
seen = {"service": [], "store": []}


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.server.server_address == SERVICE:
            seen["service"].append(self.path)
            document = {"AccessKeyId": "AKRELATIVE", "SecretAccessKey": "secret", "Token": "session", "Expiration": "2099-01-01T00:00:00Z"}
            return self.send(200, json.dumps(document).encode())
        seen["store"].append(self.headers.get("authorization", ""))
        first, last = self.headers["range"].removeprefix("bytes=").split("-")
        start = int(first) if first else max(0, len(file) - int(last))
        end = min(int(last) + 1, len(file)) if first else len(file)
        return self.send(206, file[start:end], ("Content-Range", f"bytes {start}-{end - 1}/{len(file)}"), ("ETag", '"1"'))

    def send(self, status, body, *headers):
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["ip", "addr", "add", f"{SERVICE[0]}/32", "dev", "lo"], check=True)
for address in SERVICE, STORE:
    server = http.server.ThreadingHTTPServer(address, Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
env = {"AWS_ENDPOINT_URL": "http://%s:%d" % STORE, "AWS_REGION": "r", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/x",
       "HOME": "/nowhere", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": STORE[0]}
done = subprocess.run([program, "inspect", "--allow-http", "s3://bucket/model.pth"], env=env, capture_output=True, text=True)
print(json.dumps({"status": done.returncode, "stderr": done.stderr} | seen))
