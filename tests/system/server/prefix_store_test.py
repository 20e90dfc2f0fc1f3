#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefixes on disk: what was computed of a text outlives the process.

Whatever happens to the files, and whichever process is killed at whatever moment, the text stays the same.
"""

import glob
import json
import os
import random
import resource
import stat
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, make_model, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-prefix-store-")
SMALL = ("--layers", "6", "--embd", "256", "--ff", "512", "--heads", "8", "--kv", "2", "--type", "Q8_0")
model = make_model(os.path.join(tmp.name, "m.gguf"), *SMALL, "--seed", "5")
other = make_model(os.path.join(tmp.name, "o.gguf"), *SMALL, "--seed", "6")
windows = make_model(
    os.path.join(tmp.name, "w.gguf"), "--arch", "gpt-oss", *SMALL, "--experts", "4", "--seed", "5", "--window", "48"
)
hybrid = make_model(
    os.path.join(tmp.name, "h.gguf"),
    "--arch",
    "qwen35",
    *SMALL,
    "--head-dim",
    "64",
    "--rotated",
    "16",
    "--delta-head",
    "48",
    "--delta-heads",
    "6",
    "--delta-keys",
    "2",
    "--attention-every",
    "3",
    "--seed",
    "5",
)
place = os.path.join(tmp.name, "state")
LOAD = {"ram_bytes": 96 << 20, "ctx": 512, "max_rows": 64}
KILLS = int(os.environ.get("NTX_SHELF_KILLS", "24"))


def ids(n, seed):
    return [3 + (seed * 7919 + i * i * 31 + i) % 250 for i in range(n)]


def files():
    return sorted(glob.glob(os.path.join(place, "*.prefix")))


def daemons(most="1G", share="user"):
    conf = os.path.join(tmp.name, "ntx.conf")
    with open(conf, "w") as f:
        f.write("[prefix]\nstate = %s\nstate_max = %s\n[clients]\nshare = %s\n" % (place, most, share))
    return Daemons("--config", conf)


def ask(c, tokens, n=6):
    return c.ask(tokens=tokens, ignore_eos=True, max_tokens=n, temp=0.0)


def loaded(d, file=model, **load):
    c = wait_for(lambda: connect(d), 10, "the daemon")
    c.load(file, **{**LOAD, **load})
    return c


def connect(d):
    try:
        return d.client()
    except OSError:
        return None


def clear():
    for f in os.listdir(place) if os.path.isdir(place) else []:
        os.unlink(os.path.join(place, f))


def answers(prompts, file=model, **load):
    """The expected answers, without kept state."""
    with Daemons() as d:
        c = loaded(d, file, no_prefix_cache=1, **load)
        found = [ask(c, p).tokens for p in prompts]
        c.close()
    return found


def put(prompt, file=model, most="1G", share="user", **load):
    """Makes one more file: the state of a text."""
    before = files()
    with daemons(most, share) as d:
        c = loaded(d, file, **load)
        a = ask(c, prompt)
        wait_for(lambda: files() != before, 10, "a file of a text")
        c.close()
    return a


def again(prompt, file=model, said=0, share="user", **load):
    """Repeats the requests in a new process.

    Returns its answers, how many tokens were kept, and how often it reports that a file is not used.
    """
    with daemons(share=share) as d:
        c = loaded(d, file, **load)
        a = ask(c, prompt)
        ask(c, prompt[:70])
        c.close()
        equal(d.text().count("is not used"), said, "times that a file is said not to be used")
    return a


def restored(file=model, **load):
    clear()
    first = ids(200, 1)
    text = first + put(first, file, **load).tokens
    more = text + ids(20, 2)
    want = answers([more, first[:150] + ids(30, 3)], file, **load)
    equal([stat.S_IMODE(os.stat(f).st_mode) for f in (place, files()[0])], [0o700, 0o600], "modes")
    a = again(more, file, **load)
    equal((a.tokens, a.cached), (want[0], len(first) + 5), "a text that goes on after a restart")
    if file is model:
        a = again(first[:150] + ids(30, 3), file, **load)
        equal((a.tokens, a.cached), (want[1], 150), "one that parts from it")


def edited(file, **load):
    """A text that is changed in its middle goes on from the last snapshot before the change, in a new process.

    Its file is at most three times the size that it has without snapshots.
    """
    clear()
    first = ids(420, 1)
    put(first, file, **load)
    texts = [first[:at] + ids(20, at) for at in (150, 300, 400)]
    want = answers(texts, file, **load)
    cached = []
    for text, w in zip(texts, want):
        a = again(text, file, **load)
        equal(a.tokens, w, "a text that was changed in its middle")
        cached.append(a.cached)
    clear()
    put(first, file, **load)
    flip(files()[0], -100)
    a = again(texts[2], file, said=1, **load)
    equal((a.tokens, a.cached), (want[2], 0), "beside a snapshot with a wrong bit")
    check(
        all(at - 140 < c <= at for at, c in zip((150, 300, 400), cached)) and len(set(cached)) > 1,
        "cached tokens",
        cached,
    )
    return cached


def change(path, at, to):
    with open(path, "r+b") as f:
        f.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        f.write(to)


def flip(path, at):
    with open(path, "rb") as f:
        f.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        byte = f.read(1)[0]
    change(path, at, bytes([byte ^ 16]))


def damaged():
    text = ids(200, 1)
    want = answers([text + [9]])[0]
    harm = {
        "a bit of the values": lambda p: flip(p, -5000),
        "a bit of the tokens": lambda p: flip(p, 300),
        "a bit of the head": lambda p: flip(p, 21),
        "cut": lambda p: os.truncate(p, os.path.getsize(p) // 2),
        "cut in the head": lambda p: os.truncate(p, 40),
        "empty": lambda p: os.truncate(p, 0),
        "longer": lambda p: change(p, os.path.getsize(p), b"x"),
        "no file of ours": lambda p: change(p, 0, os.urandom(5000)),
        "others may read it": lambda p: os.chmod(p, 0o644),
        "a link": lambda p: (os.rename(p, p + ".other"), os.symlink(p + ".other", p)),
    }
    if os.getuid() == 0:
        harm["of another owner"] = lambda p: os.chown(p, 65534, 65534)
    for what, do in harm.items():
        clear()
        put(text)
        do(files()[0])
        a = again(text + [9], said=1)
        equal((a.tokens, a.cached), (want, 0), what)
        left = files()
        check(left, "a file is written anew after:", what)
    clear()
    put(text)
    put(ids(200, 2))
    for f in files():
        os.chmod(f, 0o644)
    with daemons() as d:
        loaded(d).close()
        equal(
            [x.count("and 1 more are not") for x in d.text().splitlines() if "is not used" in x],
            [1],
            "files that others may read, told together",
        )


def foreign():
    """Files of another model, KV type or context are not used, and not removed."""
    clear()
    text = ids(200, 1)
    put(text)
    for file, load, of in (
        (other, {}, "0 files of another build of ntx, 1 of another model and 0"),
        (model, {"kv_type": "q8_0"}, "1 of another model and 1 of other options"),
        (model, {"ctx": 448}, "1 of another model and 2 of other options"),
    ):
        want = answers([text + [9]], file, **load)[0]
        with daemons() as d:
            c = loaded(d, file, **load)
            a = ask(c, text + [9])
            c.close()
            equal((a.tokens, a.cached), (want, 0), "beside a file of another")
            equal(
                len([x for x in d.text().splitlines() if of in x and "Remove them" in x]),
                1,
                "times that it is said whose the file is: " + of,
            )
    equal(again(text + [9]).cached, 200, "cached tokens of the first one's")


def shared():
    """What users shared is used by none of them once sharing is turned off."""
    clear()
    put(ids(200, 1), share="all")
    equal(again(ids(200, 1) + [9]).cached, 0, "cached tokens of a text that all shared")
    clear()
    put(ids(200, 1), share="all")
    equal(again(ids(200, 1) + [9], share="all").cached, 200, "cached tokens where all still share")


def covered():
    """A text that a file covers is not written again; that of an open conversation is, when its client leaves."""
    clear()
    put(ids(300, 2))
    with daemons() as d:
        c = loaded(d)
        for _ in range(3):
            ask(c, ids(300, 2)[:100], n=1)
        c.ask(tokens=ids(150, 3), ignore_eos=True, max_tokens=6, temp=0.0, keep=True)
        c.close()
        wait_for(lambda: len(files()) == 2, 10, "a file of an open text")
    equal(len(files()), 2, "files")
    clear()
    document = ids(440, 4)
    put(document)
    with daemons() as d:  # conversations on one document: it is there once, and a longer one of its own
        c = loaded(d)
        for i in range(4):
            equal(ask(c, document + ids(6, 60 + i)).cached, 440, "cached tokens of the document")
        ask(c, document[:200] + ids(200, 70))
        wait_for(lambda: len(files()) == 2, 10, "a file of a text that parted early")
        c.close()
    equal(len(files()), 2, "files of a document and five texts")


def bounded():
    """Files take at most the allowed bytes: the one with the least computing time per byte goes first."""
    clear()
    put(ids(120, 1))
    small = os.path.getsize(files()[0])
    put(ids(300, 2), most=str(3 * small))
    check(
        len(files()) == 1 and sum(os.path.getsize(f) for f in files()) <= 3 * small,
        "files:",
        [(f, os.path.getsize(f)) for f in files()],
        small,
    )
    equal(again(ids(300, 2) + [9]).cached, 300, "the one that stays")


def torn_ones():
    """A damaged file that is found counts towards the bytes, is reported, and is removed before usable ones."""
    clear()
    put(ids(120, 1))
    kept, torn = files()[0], os.path.join(place, "0123.prefix")
    size = os.path.getsize(kept)
    with open(torn, "wb") as f:
        f.write(os.urandom(size))
    os.chmod(torn, 0o600)
    with daemons(most=str(3 * size)) as d:
        loaded(d).close()
        check("the state of 1 texts, and 1 files of no use here" in d.text(), d.text())
        equal(d.text().count("is not used"), 1, "times that a torn file is said")
    equal(files(), sorted([kept, torn]), "files where there is room for both")
    with daemons(most=str(size + size // 2)) as d:
        loaded(d).close()
    equal(files(), [kept], "files where there is room for one")


def recent():
    """Of files with about the same cost, the least recently used one goes first, also in another process."""
    clear()
    sizes = {}
    for n, seed, age in ((200, 1, 30), (190, 2, 20), (190, 3, 10)):
        before = files()
        put(ids(n, seed))
        new = [f for f in files() if f not in before][0]
        sizes[new] = os.path.getsize(new)
        os.utime(new, (time.time() - age, time.time() - age))
    oldest = list(sizes)[0]
    with daemons(most=str(sum(sizes.values()) - 1)) as d:
        loaded(d).close()
    equal(files(), sorted(f for f in sizes if f != oldest), "files that stay where one must go")


def full():
    """A full drive: reported once, and the answers come."""
    clear()
    prompts = [ids(150, 10 + i) for i in range(3)]
    old = ids(90, 4)
    old += put(old).tokens
    prompts.append(old + ids(40, 5))
    want = answers(prompts)
    with daemons() as d:
        c = loaded(d)
        resource.prlimit(d.child["computed"].pid, resource.RLIMIT_FSIZE, (20000, 20000))
        for p, w in zip(prompts, want):
            equal(ask(c, p).tokens, w, "a text on a full drive")
        wait_for(lambda: "cannot be kept" in d.text(), 10, "a word about the drive")
        c.close()
    with daemons() as d:
        loaded(d).close()
    equal([os.path.join(place, f) for f in os.listdir(place)], files(), "files on a full drive")
    equal(len(files()), 1, "the file of before, whose successor had no room")


def writing(seconds):
    """Waits until a file is being written, for that time at most."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not glob.glob(os.path.join(place, "*.new")):
        pass


def killed(file, kills):
    """Daemons die at any moment, while state is written or read.

    Repeated texts, their continuations and new ones, in less room than they need.
    """
    clear()
    draw = random.Random(int(os.environ.get("NTX_SHELF_SEED", "1")))
    prompts = [ids(100 + 60 * i, 20 + i) for i in range(4)]
    prompts += [p + a + ids(12, 30) for p, a in zip(prompts, answers(prompts, file))]
    want = answers(prompts, file)
    put(prompts[3], file)
    most = 4 * os.path.getsize(files()[0])
    clear()
    used = torn = 0
    new = []
    with daemons(most=str(most)) as d:
        fresh, c = True, loaded(d, file)
        for i in range(kills):
            k = k % 4 + 4 if fresh and i else draw.randrange(8)  # after a restart, what goes on from the text before it
            a = ask(c, prompts[k])
            equal(a.tokens, want[k], "after %d kills" % i)
            used += fresh and a.cached > 0
            new.append(ids(draw.randrange(80, 260), 40 + i))
            new.append(ask(c, new[-1]).tokens)
            if draw.random() < 0.4:
                c.generate(tokens=prompts[draw.randrange(8)], ignore_eos=True, max_tokens=6, temp=0.0)
                time.sleep(draw.random() * 0.05)
            else:
                writing(0.05)
            name = draw.choice(("computed", "computed", "iod", "predictor"))
            d.kill(name)
            c.close()
            fresh = name == "computed"
            left = glob.glob(os.path.join(place, "*.new"))
            torn += len(left)
            check(
                sum(os.path.getsize(f) for f in files()) <= most and len(left) <= 1,
                "after",
                i,
                "kills:",
                os.listdir(place),
            )
            if fresh:
                with d.lock:
                    d.spawn("computed")
            c = loaded(d, file) if fresh else d.client()
        for p, w in zip(prompts, want):
            equal(ask(c, p).tokens, w, "after all kills")
        c.close()
        check("is not used" not in d.text(), "a kill left a torn file")
    equal(new[1::2], answers(new[::2], file), "texts that were new")
    check(
        (used and torn or kills < 100) and not glob.glob(os.path.join(place, "*.new")),
        "used",
        used,
        "torn",
        torn,
        "left:",
        os.listdir(place),
    )
    print("%d kills: %d in the middle of writing; %d texts went on from a file" % (kills, torn, used))


restored()
restored(kv_type="q8_0")
restored(kv_type="q4_0")
restored(windows)
restored(hybrid)
print("snapshots of windows:", edited(windows), "of a recurrent state:", edited(hybrid))
damaged()
foreign()
shared()
covered()
bounded()
torn_ones()
recent()
full()
killed(model, KILLS // 2)
killed(windows, KILLS // 4)
killed(hybrid, KILLS - KILLS // 2 - KILLS // 4)
print("what was computed outlives the process, and", KILLS, "kills")
