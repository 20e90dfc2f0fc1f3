# SPDX-License-Identifier: Apache-2.0
"""A hub on loopback: a list of files, and the files behind a redirect to another host, with faults on demand."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, check, equal, fail, make_model, wait_for  # noqa: E402,F401

NTX = os.path.join(BIN, "ntx")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        site = self.server.site
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        with site.lock:
            site.seen.append(
                {
                    "host": self.server.role,
                    "path": path,
                    "range": self.headers.get("Range"),
                    "authorization": self.headers.get("Authorization"),
                    "if_range": self.headers.get("If-Range"),
                }
            )
        try:
            if self.server.role == "hub":
                self.hub(site, path)
            else:
                self.send_file(site, path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def hub(self, site, path):
        if site.token and self.headers.get("Authorization") != "Bearer " + site.token:
            return self.say(401)
        if path.startswith("/api/models/") and site.endless:
            return self.send_endless(site)
        if path == "/api/models" or (path.startswith("/api/models/") and "/tree/" not in path):
            return self.search(site, path)
        if path.startswith("/api/models/"):
            if site.list_elsewhere:
                return self.say(307, Location=site.list_elsewhere)
            body = site.list_body if site.list_body is not None else json.dumps(site.list()).encode()
            return self.say(site.list_status, body, Content_Type="application/json")
        name = path.split("/resolve/main/", 1)[-1]
        if name not in site.files:
            return self.say(404)
        if not site.redirects:
            return self.send_file(site, path)
        more = {"X_Linked_ETag": '"%s"' % site.sha(name)} if site.linked else {}
        return self.say(302, Location=site.redirect % urllib.parse.quote(name), **more)

    def search(self, site, path):
        """/api/models?search=...: the results that hold the words; /api/models/OWNER/REPO: its information."""
        if path == "/api/models":
            asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            site.searched.append(asked)
            words = asked.get("search", [""])[0].lower()
            body = [{"id": n, "downloads": r.get("downloads")} for n, r in site.repos.items() if words in n.lower()]
            body = body[: int(asked["limit"][0])]
        else:
            repo = site.repos.get(path[len("/api/models/") :])
            if repo is None or isinstance(repo.get("info"), int):
                return self.say(repo["info"] if repo else 404)
            body = repo["info"]
        said = body if isinstance(body, bytes) else json.dumps(body).encode()
        said = site.search_body if site.search_body is not None and path == "/api/models" else said
        self.say(site.search_status, said, Content_Type="application/json")

    def send_endless(self, site):
        """ "drip": three bytes a second; "silent": none; "header": lines of a header without end."""
        self.close_connection = True
        if site.endless == "silent":
            return site.go_on.wait(60)
        if site.endless == "header":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not site.go_on.is_set():
                self.wfile.write(b"X-More: %s\r\n" % (b"a" * 1000) * 100)
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        self.drip(site)

    def drip(self, site):
        while not site.go_on.wait(1):
            self.wfile.write(b"   ")

    def send_file(self, site, path):
        name = path.split("/resolve/main/", 1)[-1].lstrip("/")
        data = site.files.get(name)
        if data is None:
            return self.say(404)
        with site.lock:
            fault = site.faults.pop(0) if site.faults and site.fault_from(self.headers.get("Range")) else None
        if isinstance(fault, int):
            return self.say(fault)
        start, end, asked = 0, len(data), self.headers.get("Range")
        etag = site.etags.get(name, '"%s"' % hashlib.md5(data).hexdigest())
        same = self.headers.get("If-Range") in (None, etag)
        if asked and site.ranges and same:
            first, _, last = asked[len("bytes=") :].partition("-")
            start, end = int(first), min(end, int(last) + 1 if last else end)
            if start >= len(data):
                return self.say(416)
        body = data[start:end]
        self.send_response(206 if asked and site.ranges and same else 200)
        if etag:
            self.send_header("ETag", etag)
        if asked and site.ranges and same:
            shift = fault[1] if fault and fault[0] == "shift" else 0
            self.send_header(
                "Content-Range", "bytes %d-%d/%d" % (start + shift, end - 1, site.totals.get(name, len(data)))
            )
        if not site.chunked:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if fault and fault[0] == "cut":
            body, self.close_connection = body[: fault[1]], True
        if fault and fault[0] == "drip":
            self.wfile.write(body[: fault[1]])
            return self.drip(site)
        if fault and fault[0] == "hang":
            self.wfile.write(body[: fault[1]])
            self.wfile.flush()
            site.hanging.set()
            site.go_on.wait(60)
            body = body[fault[1] :]
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # clients that were killed


class Site:
    """with Site() as s: s.files["x.gguf"] = b"..."; s.ntx("pull", "hf:some/model")"""

    def __init__(self, folder):
        self.files, self.etags, self.seen, self.faults = {}, {}, [], []
        self.lock, self.hanging, self.go_on = threading.Lock(), threading.Event(), threading.Event()
        self.token = self.list_body = self.endless = None
        self.list_status, self.linked, self.ranges, self.redirects, self.chunked = 200, True, True, True, False
        self.repos, self.searched, self.search_body, self.search_status = {}, [], None, 200  # the search
        self.list_elsewhere = None
        self.hashes = {}  # what the list says instead
        self.sizes = {}
        self.totals = {}  # what the store says
        self.fault_from = lambda asked: asked is None or asked.endswith("-")  # not while the header is looked at
        self.servers = []
        for role in ("hub", "store"):
            server = Server(("127.0.0.1", 0), Handler)
            server.site, server.role = self, role
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.servers.append(server)
        self.url = "http://127.0.0.1:%d" % self.servers[0].server_port
        self.store = "http://127.0.0.1:%d" % self.servers[1].server_port
        self.redirect = self.store + "/%s?signature=very-secret"
        self.data = os.path.join(folder, "data")
        self.env = dict(
            os.environ,
            NTX_HUB=self.url,
            XDG_DATA_HOME=self.data,
            XDG_CONFIG_HOME=os.path.join(folder, "config"),
            XDG_CACHE_HOME=os.path.join(folder, "cache"),
            no_proxy="*",
        )
        self.env.pop("HF_TOKEN", None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go_on.set()
        for s in self.servers:
            s.shutdown()
            s.server_close()

    def sha(self, name):
        return self.hashes.get(name, hashlib.sha256(self.files[name]).hexdigest())

    def list(self):
        return [{"type": "directory", "path": "x", "oid": "1"}] + [
            {
                "type": "file",
                "path": n,
                "size": len(b),
                "oid": "0" * 40,
                "lfs": {"oid": self.sha(n), "size": self.sizes.get(n, len(b)), "pointerSize": 134},
            }
            for n, b in self.files.items()
        ]

    def start(self, *args, **more):
        return subprocess.Popen(
            [NTX, *args], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
        )

    def ntx(self, *args, code=0, **more):
        """(standard output, standard error)"""
        p = self.start(*args, *(["--retry-ms", "10"] if args[0] == "pull" else []), **more)
        out, err = p.communicate(timeout=120)
        equal(p.returncode, code, "ntx %s said %s%s" % (" ".join(args), out, err))
        return out, err

    def path(self, *names):
        return os.path.join(self.data, "ntx", "models", *names)

    def kept(self):
        """All files of the store, by their paths within it."""
        root = self.path()
        return sorted(os.path.relpath(os.path.join(at, f), root) for at, _, files in os.walk(root) for f in files)
