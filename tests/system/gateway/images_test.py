#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures in requests of each API, in prompts and in chats: their bytes and places as they arrive in ntx-computed's
place, where a server of the tests stands; and what is refused, by name."""

import base64
import contextlib
import http.server
import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time

from computed import Computed

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import BIN, Gateway, check, equal  # noqa: E402

NTX = os.path.join(BIN, "ntx")
with open(os.path.join(os.environ["NTX_SOURCE"], "tests", "golden", "pictures.json")) as file:
    FILES = {one["name"]: one["file"] for one in json.load(file)["decode"]}
PNG, JPEG = FILES["png"], FILES["jpeg"]
BYTES = {"png": base64.b64decode(PNG), "jpeg": base64.b64decode(JPEG)}
URL = "data:image/png;base64," + PNG
TEXT = {"type": "text", "text": "Wie groß?"}


class Sessions(Computed):
    """Keeps sessions, as a chat expects it."""

    def generate(self, m):
        replies = super().generate(m)
        replies[0]["started"].update(session=7, context=5, ctx=512)
        return replies


def arrived(c):
    """The last message's text and pictures."""
    m = c.request["messages"][-1]
    return m.get("text", b"").decode(), [(i.get("at", 0), bytes(i["data"])) for i in m.get("images", [])]


def takes(c, g):
    behind = len("Wie groß?".encode())
    both = [(0, BYTES["png"]), (behind, BYTES["jpeg"])]
    jpeg = "data:image/jpeg;charset=x;base64," + JPEG[:40] + "\n" + JPEG[40:]
    openai = [{"type": "image_url", "image_url": {"url": URL, "detail": "auto"}}, TEXT]
    for path, body in (
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": openai + [{"type": "image_url", "image_url": jpeg}]}]},
        ),
        (
            "/v1/responses",
            {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_image", "image_url": URL, "detail": "auto"},
                            {"type": "input_text", "text": TEXT["text"]},
                            {"type": "input_image", "image_url": jpeg},
                        ],
                    }
                ]
            },
        ),
        (
            "/v1/messages",
            {
                "max_tokens": 5,
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                            TEXT,
                            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": JPEG}},
                        ],
                    }
                ],
            },
        ),
    ):
        status, said = g.post(path, body)
        equal(status, 200, (path, said))
        equal(arrived(c), (TEXT["text"], both), path)
        usage = said.get("usage", {})
        equal(usage.get("prompt_tokens", usage.get("input_tokens")), 5, "rows of pictures are tokens of the prompt")
    for path, body in (
        ("/api/chat", {"messages": [{"role": "user", "content": "Hi", "images": [PNG, JPEG]}]}),
        ("/api/generate", {"prompt": "Hi", "images": [PNG, JPEG]}),
    ):
        equal(g.post(path, dict(body, stream=False))[0], 200, path)
        equal(arrived(c), ("Hi", [(0, BYTES["png"]), (0, BYTES["jpeg"])]), path)
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [{"type": "image", "source": {"type": "base64", "data": PNG}}],
    }
    call = {"type": "tool_use", "id": "t", "name": "shoot", "input": {}}
    talk = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    equal(g.post("/v1/messages", {"max_tokens": 5, "messages": talk})[0], 200, "a result")
    equal(arrived(c), ("", [(0, BYTES["png"])]), "a tool's picture")
    low = {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL, "detail": "low"}}]}]
    }
    status, head, _ = g.request("POST", "/v1/chat/completions", low)
    equal((status, head.get("warning")), (200, '299 ntx "ignored: image_url.detail"'), "a detail")


def counts(c, g):
    parts = [{"type": "image_url", "image_url": URL}, TEXT, {"type": "image_url", "image_url": URL}]
    status, said = g.post("/apply-template", {"messages": [{"role": "user", "content": parts}]})
    equal(status, 200, said)
    kind, m = c.asked[-1]
    equal((kind, m["messages"][-1]["text"].decode()), ("text", "<__media__>%s<__media__>" % TEXT["text"]), "marks")
    check("images" not in m["messages"][-1], "a picture for a rendered prompt")
    source = {"type": "image", "source": {"type": "base64", "data": PNG}}
    status, said = g.post("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": [source, TEXT]}]})
    equal((status, said), (200, {"input_tokens": 5}), "tokens of a prompt with a picture")
    equal(arrived(c), (TEXT["text"], [(0, BYTES["png"])]), "the picture of a count")


def refuses(c, g):
    for part, words in (
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "nothing is fetched"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "must have the form data:"),
        ({"type": "image_url", "image_url": {"url": "data:image/png," + PNG}}, "must have the form data:"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,###"}}, "not base64"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,JVBERi0xLjcK"}}, "this is a PDF"),
        ({"type": "image_url"}, "has no 'url'"),
        ({"type": "input_image", "file_id": "file-1"}, "file_id"),
        ({"type": "input_audio", "input_audio": {}}, "audio needs an encoder"),
        ({"type": "video_url", "video_url": {}}, "video needs frames"),
        ({"type": "input_file", "file_id": "x"}, "documents are not taken apart"),
        ({"type": "hologram"}, "text and pictures are"),
    ):
        status, said = g.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]})
        check(status == 400 and words in said["error"]["message"], part, status, said)
    source = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    status, said = g.post("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": [source]}]})
    check(status == 400 and "nothing is fetched" in said["error"]["message"], status, said)
    for body, words in (
        ({"prompt": "a", "images": "x"}, "list of pictures"),
        ({"prompt": "a", "images": [7]}, "list of pictures"),
        ({"prompt": "a", "images": [PNG], "raw": True}, "without 'raw'"),
    ):
        status, said = g.post("/api/generate", body)
        check(status == 400 and words in said["error"], body, status, said)
    # more than a frame holds
    big = "data:image/png;base64," + base64.b64encode(BYTES["png"] + bytes(17 << 20)).decode()
    talk = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": big}]}]}
    status, said = g.post("/v1/chat/completions", talk)
    check(status in (400, 413) and "16 MiB" in said["error"]["message"], status, said)


class Files(http.server.BaseHTTPRequestHandler):
    """What other hosts serve."""

    def do_GET(self):
        port, kind = self.server.server_address[1], self.path[1:]
        away = {
            "again": "http://127.0.0.1:%d/png" % port,
            "named": "http://localhost:%d/png" % port,
            "else": "http://127.0.0.1:1/png",
            "loop": "/loop",
            "file": "file:///etc/passwd",
        }
        self.server.asked.append(kind)
        if kind in away:
            self.send_response(302)
            self.send_header("Location", away[kind])
            self.end_headers()
            return
        body = {"pdf": b"%PDF-1.7\n", "big": bytes(17 << 20)}.get(kind, BYTES.get(kind))
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body or b"")

    def log_message(self, *arguments):
        pass


def fetches(c, dir):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.asked = []
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(g, url):
        content = [{"type": "image_url", "image_url": {"url": url}}, TEXT]
        return g.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})

    env = dict(os.environ, http_proxy="http://127.0.0.1:1", HTTP_PROXY="http://127.0.0.1:1")
    hosts = "127.0.0.1:%d localhost:%d, *.example.org" % (port, port)
    with Gateway(c, "--image-hosts", hosts, env=env) as g:
        for path in ("png", "again"):
            status, said = ask(g, "http://127.0.0.1:%d/%s" % (port, path))
            equal((status, arrived(c)), (200, (TEXT["text"], [(0, BYTES["png"])])), (path, said))
        source = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:%d/jpeg" % port}}
        status, said = g.post("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": [source]}]})
        equal((status, arrived(c)[1]), (200, [(0, BYTES["jpeg"])]), said)
        server.asked.clear()
        for url, words in (
            ("http://127.0.0.1:1/png", "not among the hosts"),
            ("http://localhost:%d/png" % port, "an address of this machine"),
            ("http://[::ffff:127.0.0.1]:%d/png" % port, "not among the hosts"),
            ("http://2130706433:%d/png" % port, None),  # another form of 127.0.0.1
            ("http://example.org/png", "not among the hosts"),
            ("http://u:p@127.0.0.1:%d/png" % port, "has a password in it"),
            ("https://169.254.169.254/latest", "not among the hosts"),
        ):
            status, said = ask(g, url)
            if words or status != 200:
                check(status == 400 and (words or "") in said["error"]["message"], url, status, said)
            check(words is None or not server.asked, "it was asked", url)
            server.asked.clear()
        for path, words in (
            ("named", "an address of this machine"),
            ("else", "not among the hosts"),
            ("file", "no address of HTTP"),
            ("loop", "redirects"),
            ("pdf", "this is a PDF"),
            ("gone", "status 404"),
            ("big", "16 MiB"),
        ):
            status, said = ask(g, "http://127.0.0.1:%d/%s" % (port, path))
            check(status == 400 and words in said["error"]["message"], path, status, said)
    conf = os.path.join(dir, "ntx.conf")
    for hosts, good in (("a.example *.b.example c.example:8443 [::1]:80 *", True), ("http://a.example", False)):
        with open(conf, "w") as f:
            f.write("[gateway]\nimage_hosts = %s\n" % hosts)
        said = run("config", "check", conf)
        check((said.returncode == 0) == good and good != ("image_hosts" in said.stdout + said.stderr), hosts, said)
    said = run("serve", "--image-hosts", "http://a.example", "--listen", "127.0.0.1:0")
    check(said.returncode and "--image-hosts" in said.stderr, said)
    server.shutdown()


def run(*arguments, **more):
    return subprocess.run([NTX, *arguments], capture_output=True, text=True, timeout=60, **more)


def prompts(c, dir):
    socket = ["--socket", os.path.join(dir, "ntx.sock")]
    paths = {name: os.path.join(dir, "a " + name) for name in BYTES}
    for name, path in paths.items():
        with open(path, "wb") as f:
            f.write(BYTES[name])
    said = run("generate", "Hi", *socket, "--image", paths["png"], "--image", paths["jpeg"])
    equal((said.returncode, arrived(c)), (0, ("Hi", [(0, BYTES["png"]), (0, BYTES["jpeg"])])), said.stderr)
    said = run("generate", "Hi", "--raw", *socket, "--image", paths["png"])
    equal((said.returncode, bytes(c.request["images"][0]["data"])), (0, BYTES["png"]), said.stderr)
    for name, content, words in (
        ("talk.pdf", b"%PDF-1.7\n", "a PDF, not a picture"),
        ("film.mp4", b"\0\0\0\x18ftypisom\0\0\0\0", "video"),
        ("none", b"", "empty"),
    ):
        path = os.path.join(dir, name)
        with open(path, "wb") as f:
            f.write(content)
        said = run("generate", "Hi", *socket, "--image", path)
        check(said.returncode == 111 and path in said.stderr and words in said.stderr, name, said)
    said = run("generate", "Hi", *socket, "--image", os.path.join(dir, "nowhere.png"))
    check("cannot open the picture" in said.stderr, said)

    # a chat: /image, and what the next request has of the pictures that were sent
    lines = "/image %s\n/image %s\nWhat?\nAnd?\n" % (paths["png"], paths["jpeg"])
    said = run("chat", *socket, input=lines)
    equal(said.returncode, 0, said.stderr)
    first, last = (m["messages"] for kind, m in c.asked[-2:])
    equal(len(first[-1]["images"]), 2, "of the first message")
    check("images" not in last[-1], "the second message has none")
    said = run("chat", *socket, "--image", paths["png"], input="What?\n")
    equal((said.returncode, arrived(c)), (0, ("What?", [(0, BYTES["png"])])), said.stderr)
    said = run(
        "chat", *socket, input="/image %s\n/save %s/talk.json\nWhat?\n/save %s/talk.json\n" % (paths["png"], dir, dir)
    )
    equal(said.returncode, 0, said.stderr)
    with open(os.path.join(dir, "talk.json")) as f:
        equal(json.load(f)["messages"][0]["images"], [os.path.realpath(paths["png"])], "a saved conversation")
    run("chat", *socket, input="/load %s/talk.json\nAnd?\n" % dir)
    equal(len(c.request["messages"][0]["images"]), 1, "a conversation that goes on has its picture again")
    equal(arrived(c), ("And?", []), "and the new message has none")


def pasted(c, dir):
    """A terminal pastes the path of a file that is dropped on it, with backslashes before blanks."""
    leader, follower = pty.openpty()
    path = os.path.join(dir, "a png")
    p = subprocess.Popen(
        [NTX, "chat", "--socket", os.path.join(dir, "ntx.sock")],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=dict(os.environ, TERM="dumb"),
    )
    os.close(follower)
    c.asked.clear()
    time.sleep(0.5)
    os.write(leader, ("%s What is it? /etc/hostname\n" % path.replace(" ", "\\ ")).encode())
    for _ in range(200):
        if c.asked:
            break
        time.sleep(0.05)
    time.sleep(0.2)
    os.write(leader, b"/bye\n")
    p.wait(20)
    os.close(leader)
    equal(arrived(c), ("What is it? /etc/hostname", [(0, BYTES["png"])]), "a pasted path")


with tempfile.TemporaryDirectory(prefix="ntx-images-") as dir:
    c = Sessions(dir)
    c.text = "Small."
    with Gateway(c) as g:
        takes(c, g)
        counts(c, g)
        refuses(c, g)
    fetches(c, dir)
    prompts(c, dir)
    pasted(c, dir)
