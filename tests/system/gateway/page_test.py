#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chat page in headless Chromium, by its DevTools protocol over a pipe, with the keyboard alone.

On a desktop; in tests/run --long at phone and desktop widths, dark and light. Skipped without Chromium, which tests/run
--long installs.
"""

import contextlib
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import zlib

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from page_markdown import LONG, MARKDOWN, XSS  # noqa: E402
from gateway import Daemons, Gateway, check, equal, fail, make_model, patience, wait_for  # noqa: E402

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if not BROWSER:
    print("skipped: there is no Chromium here")
    sys.exit(77)

KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Tab": ("Tab", 9, ""),
    "Escape": ("Escape", 27, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    " ": ("Space", 32, " "),
    "n": ("KeyN", 78, "n"),
}
SCREENS = {"desktop": (1280, 800, False), "phone": (360, 740, True)}
SEEN = (
    [(screen, scheme) for screen in SCREENS for scheme in ("light", "dark")]
    if os.environ.get("NTX_LONG")
    else [("desktop", "light")]
)


class Browser:
    def __init__(self, home):
        to, self.write = os.pipe()
        self.read, back = os.pipe()
        os.makedirs(home, exist_ok=True)

        def pipes():  # the protocol's: 3 in, 4 out
            a, b = os.dup(to), os.dup(back)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.log = open(os.path.join(home, "log"), "w+b")
        self.p = subprocess.Popen(
            [
                BROWSER,
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--hide-scrollbars",
                "--user-data-dir=" + home,
                "about:blank",
            ],
            preexec_fn=pipes,
            close_fds=False,
            stdout=self.log,
            stderr=self.log,
            env=dict(os.environ, HOME=home),
        )
        os.close(to)
        os.close(back)
        self.numbers, self.replies, self.events, self.more = itertools.count(1), {}, [], threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        data = b""
        while True:
            got = os.read(self.read, 1 << 20)
            if not got:
                return
            data += got
            *whole, data = data.split(b"\0")
            with self.more:
                for m in map(json.loads, whole):
                    if "id" in m:
                        self.replies[m["id"]] = m
                    else:
                        self.events.append(m)
                self.more.notify_all()

    def ask(self, method, session=None, **params):
        n = next(self.numbers)
        os.write(
            self.write,
            json.dumps(
                dict({"id": n, "method": method, "params": params}, **({"sessionId": session} if session else {}))
            ).encode()
            + b"\0",
        )
        with self.more:
            if not self.more.wait_for(lambda: n in self.replies, 120):
                self.log.seek(0)
                fail("Chromium does not answer %s: %s" % (method, self.log.read()[-2000:].decode(errors="replace")))
            r = self.replies.pop(n)
        check("error" not in r, method, r)
        return r["result"]

    def end(self):
        self.p.kill()
        self.p.wait()


class Page:
    def __init__(self, browser, url, screen, scheme):
        self.b = browser
        self.context = browser.ask("Target.createBrowserContext")["browserContextId"]
        target = self.tab()
        self.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        width, height, phone = SCREENS[screen]
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for domain in ("Runtime", "Log", "Page"):
            self.ask(domain + ".enable")
        self.go(url)

    def tab(self):
        return self.b.ask("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]

    @contextlib.contextmanager
    def covered(self):
        """Another tab is before the page, which draws no frames meanwhile."""
        other = self.tab()
        self.until("document.visibilityState === 'hidden'")
        yield
        self.b.ask("Target.closeTarget", targetId=other)
        self.until("document.visibilityState === 'visible'")

    def close(self):
        self.b.ask("Target.disposeBrowserContext", browserContextId=self.context)

    def go(self, url):
        self.ask("Page.navigate", url=url)
        self.until(
            "document.readyState === 'complete' && !!document.getElementById('model')?.textContent &&"
            " document.getElementById('pipe').children.length > 0"
        )

    def ask(self, method, **params):
        return self.b.ask(method, self.session, **params)

    def js(self, text):
        r = self.ask("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        check("exceptionDetails" not in r, text, r)
        return r["result"].get("value")

    def until(self, text, seconds=30):
        wait_for(lambda: self.js(text), seconds, text)

    def key(self, name, alt=False, shift=False):
        code, number, text = KEYS[name]
        more = dict(
            key=name, code=code, windowsVirtualKeyCode=number, modifiers=(1 if alt else 0) + (8 if shift else 0)
        )
        self.ask("Input.dispatchKeyEvent", type="keyDown", **(dict(more, text=text) if text and not alt else more))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **more)

    def type(self, text):
        self.ask("Input.insertText", text=text)

    def focus(self):
        return self.js(
            "document.activeElement.id || document.activeElement.name || document.activeElement.textContent ||"
            " document.activeElement.tagName"
        )

    def tab_to(self, name):
        """Moves with the Tab key alone; each element on the way shows that it has the focus."""
        for _ in range(60):
            self.key("Tab")
            if self.js("document.activeElement !== document.body"):
                check(
                    self.js("getComputedStyle(document.activeElement).outlineStyle") != "none",
                    "a focus that cannot be seen:",
                    self.focus(),
                )
            if self.focus() == name:
                return
        fail("the keyboard does not reach " + name)

    def errors(self):
        with self.b.more:
            bad = [
                e
                for e in self.b.events
                if e.get("sessionId") == self.session
                and (
                    e["method"] == "Runtime.exceptionThrown"
                    or (e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error")
                )
            ]
        return bad


def within(p, what):
    """Nothing is wider than the screen, and all buttons and inputs are on it."""
    equal(p.js("document.documentElement.scrollWidth <= innerWidth"), True, what + ": wider than the screen")
    out = p.js(
        """[...document.querySelectorAll("#top button, #form button, #ask, dialog[open] button, dialog[open] input")]
        .filter(e => e.offsetParent !== null || e.closest("dialog[open]"))
        .filter(e => {
            const r = e.getBoundingClientRect();
            return r.width && (r.left < 0 || r.right > innerWidth || r.bottom > innerHeight || r.top < 0);
        })
        .map(e => e.id || e.name || e.textContent)"""
    )
    equal(out, [], what + ": outside of the screen")


def contrast(p, what):
    """Text has WCAG's contrast of 4.5 with its background."""
    low = p.js("""(() => {
        const rgb = s => s.match(/[\\d.]+/g).map(Number);
        const linear = x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
        const lum = c => {
            const [r, g, b] = c.slice(0, 3).map(linear);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const back = e => {
            for (; e; e = e.parentElement) {
                const c = rgb(getComputedStyle(e).backgroundColor);
                if (c.length < 4 || c[3] > 0.99) return c;
            }
            return [255, 255, 255];
        };
        const low = [];
        for (const e of document.querySelectorAll("body *")) {
            if (!e.checkVisibility() || e.tagName === "SCRIPT" || e.tagName === "STYLE") continue;
            if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
            const a = lum(rgb(getComputedStyle(e).color)), b = lum(back(e));
            const k = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (k < 4.5) low.push([e.tagName, e.className, e.textContent.slice(0, 20), k.toFixed(2)]);
        }
        return low; })()""")
    equal(low, [], what + ": text that can hardly be read")


def settle(p):
    p.until("stop === null && talks[at].messages.length > 0 && talks[at].messages.at(-1).role === 'assistant'", 60)


def use(p, want, phone, what):
    equal(
        p.js(
            "(e => e.firstChild.textContent + e.textContent)(make('p', {}, 'a\\u202eb', make('i', { textContent:"
            " '\\u2066c' })))"
        ),
        "a\\u202eba\\u202eb\\u2066c",
        what + ": marks of direction",
    )
    within(p, what)
    contrast(p, what)
    equal(p.focus(), "ask", what + ": where the focus is at first")
    p.tab_to("set")
    p.key("Enter")
    p.until("document.getElementById('settings').open")
    within(p, what + ", settings")
    contrast(p, what + ", settings")
    equal(
        p.js("new Set([...document.querySelectorAll('dialog [name]')].map(e => e.getBoundingClientRect().left)).size"),
        1,
        what + ": the settings' fields stand below each other",
    )
    equal(
        p.js(
            "[...document.querySelectorAll('dialog label')].filter(e => { const r = document.createRange();"
            " r.selectNodeContents(e.firstChild); return r.getBoundingClientRect().right >"
            " e.lastElementChild.getBoundingClientRect().left; }).length"
        ),
        0,
        what + ": labels beside their fields",
    )
    for name, value in (("temperature", "0"), ("max_tokens", "24")):
        p.tab_to(name)
        p.type(value)
    p.key("Escape")
    p.until("!document.getElementById('settings').open")
    equal(p.focus(), "set", what + ": where the focus is after a dialog")
    p.tab_to("ask")
    p.type("Hello <img src=x onerror=alert(1)> `code`")
    p.key("Enter")
    settle(p)
    equal(p.js("talks[at].messages[1].content"), want, what + ": the answer")
    equal(p.js("document.querySelectorAll('#talk img, #talk script').length"), 0, what + ": markup out of a text")
    check(
        "24 tokens" in p.js("document.querySelector('#talk article:last-child .foot').textContent"),
        what,
        "tokens per second",
        p.js("document.querySelector('#talk article:last-child .foot').textContent"),
    )
    within(p, what + ", a talk")
    p.until("document.querySelectorAll('#pipe div').length > 3")
    equal(
        p.js(
            "[...document.querySelectorAll('#pipe > div:not(.bar)')].filter(e => e.getBoundingClientRect().height >"
            " 30).map(e => e.textContent)"
        ),
        [],
        what + ": the pipeline's rows are one line each",
    )
    equal(
        p.js(
            "Math.round([...document.querySelectorAll('#pipe .bar i')].reduce((n, e) => n +"
            " e.getBoundingClientRect().width, 0) - document.querySelector('#pipe .bar').getBoundingClientRect().width)"
        ),
        0,
        what + ": the bar's parts fill it",
    )
    contrast(p, what + ", a talk")
    p.key("Tab")
    p.tab_to("Again")
    p.key("Enter")
    settle(p)
    equal((p.js("talks[at].messages.length"), p.js("talks[at].messages[1].content")), (2, want), what + ": once more")
    p.tab_to("ask")
    p.key("ArrowUp")
    equal(p.js("document.getElementById('ask').value.slice(0, 5)"), "Hello", what + ": the last message, to be edited")
    p.js("document.getElementById('ask').select()")
    p.js("settings.max_tokens = 100000")
    p.type("Go on")
    p.key("Enter")
    p.until("talks[at].messages.at(-1).content.length > 20")
    p.key("Escape")
    settle(p)
    equal(p.js("talks[at].messages.at(-1).note"), "stopped", what + ": Escape")
    thoughts(p, what)
    p.key("n", alt=True)
    p.until("talks.length === 2 && talks[at].messages.length === 0")
    if phone:
        equal(p.js("getComputedStyle(document.getElementById('side')).visibility"), "hidden", what + ": the side")
        p.tab_to("menu")
        p.key("Enter")
        p.until("getComputedStyle(document.getElementById('side')).visibility === 'visible'")
        contrast(p, what + ", the side")
        equal(p.focus(), "new", what + ": the side by the keyboard")
        p.key("Escape")
        p.until("getComputedStyle(document.getElementById('side')).visibility === 'hidden'")
        equal(p.focus(), "menu", what + ": where the focus is after the side")
    kept = p.js("localStorage['ntx.talks']")
    p.ask("Page.reload")
    p.until(
        "document.readyState === 'complete' && typeof talks !== 'undefined' &&"
        " document.getElementById('list').children.length > 0"
    )
    equal(p.js("JSON.stringify(talks)"), kept, what + ": what the browser keeps")
    equal(p.errors(), [], what + ": errors")


def thoughts(p, what):
    """Thoughts are folded until the user opens them, also with the keyboard."""
    p.js(
        "talks[at].messages.push({role: 'assistant', thought: 'Hm.', content: 'So:\\n```\\n' + 'x'.repeat(500) +"
        " '\\n```\\n' + 'y'.repeat(500)}); showTalk()"
    )
    within(p, what + ", long lines")
    contrast(p, what + ", a thought")
    equal(p.js("document.querySelector('#talk details').open"), False, what + ": a thought is folded")
    p.js("document.querySelector('#talk summary').focus()")
    p.key("Enter")
    p.until("document.querySelector('#talk details').open")
    p.js("talks[at].messages.pop(); showTalk()")


def markdown(p, what):
    """Markdown becomes these elements, in a stream as well as at once; nothing that a text has is run."""
    shown = "(t => { const e = make('div'); fill(e, t); return e.innerHTML; })(%s)"
    for text, want in MARKDOWN:
        equal(p.js(shown % json.dumps(text)), want, what + ": " + text)
    pieces = (
        "(t => { const e = make('div'); for (let i = 1; i <= t.length; i++) fill(e, t.slice(0, i));"
        " return e.innerHTML; })(%s)"
    )
    for text, want in MARKDOWN + [(LONG, p.js(shown % json.dumps(LONG)))]:
        equal(p.js(pieces % json.dumps(text)), want, what + ", letter by letter: " + text[:40])
    kept = p.js(
        "(() => { const e = make('div'); fill(e, 'one\\n\\ntwo'); const first = e.firstChild;"
        " fill(e, 'one\\n\\ntwo and');"
        " return first === e.firstChild && e.children.length === 2; })()"
    )
    equal(kept, True, what + ": what did not change stays")
    for deep in (
        "> " * 5000 + "x",
        "- " * 3000 + "x",
        "*" * 20000,
        "[" * 20000,
        "`" * 9999 + "x",
        "$a " * 9000,
        "**a " * 9000,
    ):
        took = p.js(
            "(() => { const t = performance.now(); %s; return performance.now() - t; })()" % (shown % json.dumps(deep))
        )
        check(took < 3000 * patience(), what, "a text of", deep[:10], "takes", took, "ms")


def attacks(p, what):
    check(len(XSS) >= 100, "attacks:", len(XSS))
    p.js("window.ran = 0; window.xss = () => window.ran++")
    for text in XSS:
        p.js(
            "talks[at].messages = [{role: 'user', content: %s}, {role: 'assistant', content: %s, thought: %s}];"
            " talks[at].title = %s; showList(); showTalk()" % ((json.dumps(text),) * 4)
        )
        bad = p.js(
            """[...document.querySelectorAll("#talk *, #list *")].filter(e =>
            !["ARTICLE", "DIV", "P", "SPAN", "BUTTON", "DETAILS", "SUMMARY", "PRE", "CODE", "HEADER", "STRONG", "EM",
              "BR", "A", "H1", "H2", "UL", "LI",
              "BLOCKQUOTE", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD", "DEL"].includes(e.tagName) ||
            [...e.attributes].some(a => a.name.startsWith("on")) ||
            (e.tagName === "A" && !/^https?:/.test(e.href))).map(e => e.outerHTML)"""
        )
        equal(bad, [], what + ": " + text)
        p.js("document.querySelectorAll('#talk a').forEach(a => a.dispatchEvent(new Event('mouseover')))")
    equal(p.js("window.ran"), 0, what + ": code of a text that was run")
    p.js("talks[at].messages = []; talks[at].title = ''; showList(); showTalk()")


def layout(p, what):
    """A long answer keeps to the screen. A stream's end looks, to the pixel, as the same text at once."""
    say = "talks[at].messages = [{role: 'user', content: 'Show it.'}, {role: 'assistant', content: %s}]; showTalk()"
    p.js(say % json.dumps(LONG))
    within(p, what + ", Markdown")
    contrast(p, what + ", Markdown")
    wide = p.js(
        "[...document.querySelectorAll('#talk article *')].filter(e => !e.closest('pre, .wide') &&"
        " e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 80))"
    )
    equal(wide, [], what + ": elements beyond the screen")
    p.js("$('ask').style.caretColor = 'transparent'")  # it blinks
    whole = p.ask("Page.captureScreenshot", format="png")["data"]
    p.js(
        "talks[at].messages[1].content = ''; showTalk(); (t => { const m = talks[at].messages[1],"
        " e = $('talk').children[1]; for (let i = 0; i < t.length; i += 7) { m.content = t.slice(0, i);"
        " update(e, m, 1); } m.content = t; update(e, m, 1); })"
        "(%s); $('talk').scrollTop = $('talk').scrollHeight; document.activeElement.blur()" % json.dumps(LONG)
    )
    p.js("$('ask').focus()")
    equal(p.ask("Page.captureScreenshot", format="png")["data"] == whole, True, what + ": a stream's picture")
    p.js("$('ask').style.caretColor = ''; talks[at].messages = []; showTalk()")


THREE = (
    "talks = [{title: 'Bread', messages: [{role: 'user', content: 'flour'}, {role: 'assistant', content: 'yes'}]},"
    " {title: 'Stones', messages: [{role: 'user', content: 'granite'}]}, {title: '', messages: []}]; open(0)"
)
NAMES = "[...document.querySelectorAll('#list .open')].map(e => e.textContent)"


def late(p, what):
    """Of two answers to the question about deletion each counts once, also where Chromium holds back a close event."""
    p.js(THREE)
    with p.covered():
        p.js("askRemove(1); $('sure').close(); askRemove(0); $('sure').querySelector('[value=yes]').click()")
        equal(p.js(NAMES), ["Stones", "New conversation"], what + ": deleted without a frame")
    p.js("new Promise(requestAnimationFrame)")
    equal(p.js(NAMES), ["Stones", "New conversation"], what + ": deleted once")


def keep_talks(p, what):
    """Search, a question before something is deleted, the file of a conversation, defaults, and the list of models."""
    p.js(THREE)
    for want, found in (
        ("stone", ["Stones"]),
        ("FLOUR", ["Bread"]),
        ("zzz", []),
        ("", ["Bread", "Stones", "New conversation"]),
    ):
        p.js("$('find').value = %s; $('find').oninput()" % json.dumps(want))
        equal(p.js(NAMES), found, what + ": search for " + want)
    p.js("document.querySelectorAll('#list button')[3].click()")
    p.until("$('sure').open")
    within(p, what + ", the question")
    check("Stones" in p.js("$('which').textContent"), "what is to be deleted")
    p.key("Escape")
    p.until("!$('sure').open")
    equal(p.js("talks.length"), 3, what + ": kept")
    p.js("document.querySelectorAll('#list button')[3].click()")
    p.until("$('sure').open")
    p.js("document.querySelector('#sure button[value=yes]').click()")
    p.until("talks.length === 2")
    equal(p.js(NAMES), ["Bread", "New conversation"], what + ": deleted")
    saved = p.js(
        "(async () => { let a; const click = HTMLAnchorElement.prototype.click; HTMLAnchorElement.prototype.click ="
        " function() { a = this; }; open(0); $('export').click(); HTMLAnchorElement.prototype.click = click;"
        " const blobs = []; return [a.download, a.href.slice(0, 5)]; })()"
    )
    equal(saved, ["Bread.md", "blob:"], what + ": the file of a conversation")
    equal(p.js("document.querySelector('[name=temperature]').placeholder"), "0.8", what + ": a default is shown")
    p.js(
        "window.fetch = (f => (u, o) => u === 'v1/models' ?"
        " Promise.resolve(new Response(JSON.stringify({data: [{id: 'a',"
        " context_length: 5}, {id: 'b', status: {value: 'loaded'}}]}))) : f(u, o))(window.fetch); name()"
    )
    p.until("!$('models').hidden")
    equal(p.js("[$('models').value, $('model').hidden, $('models').options.length]"), ["b", True, 2], what + ": models")
    p.js("$('models').value = 'a'; $('models').onchange()")
    equal(p.js("request([]).model"), "a", what + ": the chosen model is asked")
    within(p, what + ", with models")
    p.js("delete settings.model; settings.reasoning_effort = 'low'")
    equal(p.js("request([]).reasoning_effort"), "low", what + ": thinking")
    p.js("localStorage.clear()")


def attach(p, folder):
    path = os.path.join(folder, "notes.txt")
    with open(path, "w") as f:
        f.write("some <b>notes</b>")
    root = p.ask("DOM.getDocument")["root"]["nodeId"]
    p.ask(
        "DOM.setFileInputFiles",
        files=[path],
        nodeId=p.ask("DOM.querySelector", nodeId=root, selector="#file")["nodeId"],
    )
    p.until("document.getElementById('ask').value.includes('notes.txt:\\n```\\nsome <b>notes</b>\\n```')")


def pictures(p, folder):
    """A picture of 3000 x 200 is made smaller, shown, sent, and refused by a model without a projector, by name."""
    path = os.path.join(folder, "wide.png")
    row = b"\0" + b"\x20\x80\xe0" * 3000
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 3000, 200, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(row * 200)),
        (b"IEND", b""),
    )
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in chunks:
            f.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    p.js("fresh()")
    node = p.ask("DOM.querySelector", nodeId=p.ask("DOM.getDocument")["root"]["nodeId"], selector="#file")["nodeId"]
    p.ask("DOM.setFileInputFiles", files=[path], nodeId=node)
    p.until("held.length == 1 && document.querySelector('#held img').naturalWidth == 1536")
    equal(p.js("document.querySelector('#held img').naturalHeight"), 102, "in its shape")
    p.js("$('ask').value = 'What is it?'; send()")
    p.until("!stop && talks[at].messages.length == 2")
    equal(p.js("document.querySelectorAll('#talk .user .pictures img').length"), 1, "it is shown with the message")
    equal(p.js("held.length"), 0, "the next message has none")
    error = p.js("talks[at].messages[1].error")
    check("cannot take pictures" in error, "a model without a projector refuses it by name:", error)
    check(p.js("JSON.parse(localStorage['ntx.talks'])[0].messages[0].pictures.length") == 1, "it is kept")


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-page-") as tmp, Daemons() as d, Gateway(d) as g:
        model = make_model(
            os.path.join(tmp, "m.gguf"),
            "--layers",
            "2",
            "--embd",
            "64",
            "--ff",
            "128",
            "--heads",
            "2",
            "--kv",
            "1",
            "--seed",
            "5",
            "--chat-template",
            "chatml",
            "--ctx",
            "16384",
        )
        c = d.client()
        c.load(model, ctx=16384, sessions=2, threads=1)  # an answer without a limit lasts for seconds
        a = c.ask(
            temp=0,
            max_tokens=24,
            messages=[{"role": "user", "text": "Hello <img src=x onerror=alert(1)> `code`"}],
            sampling={"repeat_penalty": 1},
        )
        b = Browser(os.path.join(tmp, "browser"))
        try:
            for screen, scheme in SEEN:
                what = screen + " " + scheme
                p = Page(b, "http://127.0.0.1:%d/" % g.port, screen, scheme)
                use(p, a.text.decode(), screen == "phone", what)
                p.close()
                p = Page(b, "http://127.0.0.1:%d/" % g.port, screen, scheme)
                layout(p, what)
                late(p, what)
                keep_talks(p, what)
                equal(p.errors(), [], what + ": errors")
                p.close()
            p = Page(b, "http://127.0.0.1:%d/" % g.port, "desktop", "light")
            markdown(p, "Markdown")
            attacks(p, "attacks")
            equal(p.errors(), [], "errors")
            attach(p, tmp)
            pictures(p, tmp)
        finally:
            b.end()
        c.close()


if __name__ == "__main__":
    main()
