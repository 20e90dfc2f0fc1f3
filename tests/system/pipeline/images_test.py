#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures from the command line to a model that sees: the projector beside the model is found, named, left out, or of
no use, and a picture in a prompt changes the answer."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "system", "server"))
import images_cases as cases  # noqa: E402
from daemons import BIN, check, equal, make_model  # noqa: E402

NTX = os.path.join(BIN, "ntx")
tmp = tempfile.TemporaryDirectory(prefix="ntx-images-")


def path(*names):
    os.makedirs(os.path.join(tmp.name, *names[:-1]), exist_ok=True)
    return os.path.join(tmp.name, *names)


def run(model, *arguments, code=0, text="What is it?"):
    command = [NTX, "run", model, text, "--raw", "--temp", "0", "-n", "6", "--ignore-eos", "--ctx", "512", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ, LC_ALL="C.UTF-8"))
    equal(said.returncode, code, said.stderr)
    return said.stdout, said.stderr


model, projector = path("sees", "m.gguf"), path("else", "p.gguf")
cases.make(BIN, "qwen3vl_merger", model, projector)
for name, picture in (("a.png", (3, 3, 3)), ("b.png", (5, 4, 1))):
    with open(path(name), "wb") as f:
        f.write(cases.png(picture))
A, B = path("a.png"), path("b.png")

# no projector
_, err = run(model, "--image", A, code=111)
check("load it with its projector (--mmproj FILE)" in err, err)
blind, _ = run(model)

# a named one
seen, _ = run(model, "--mmproj", projector, "--image", A)
other, _ = run(model, "--mmproj", projector, "--image", B)
both, _ = run(model, "--mmproj", projector, "--image", A, "--image", B)
check(len({blind, seen, other, both}) >= 3 and blind not in (seen, other, both), blind, seen, other, both)
equal(run(model, "--mmproj", projector)[0], blind, "a text without pictures is the same")
_, err = run(model, "--mmproj", path("nowhere.gguf"), code=111)
check("cannot open the projector" in err, err)

# one beside the model
beside = path("sees", "mmproj-m-F16.gguf")
shutil.copy(projector, beside)
text, err = run(model, "--image", A)
equal(text, seen, "by the projector beside the model")
check(beside in err and "--mmproj off" in err, err)
_, err = run(model, "--mmproj", "off", "--image", A, code=111)
check("cannot take pictures" in err, err)

# one of no use: of another width it is not found, and of a kind that is not known the model stays blind
make_model(beside, "--arch", "mmproj-qwen3vl_merger", "--embd", str(2 * cases.EMBD))
_, err = run(model, "--image", A, code=111)
check("load it with its projector" in err and beside not in err, err)
with open(projector, "rb") as f:
    data = f.read()
check(b"qwen3vl_merger" in data, "the kind of the projector")
with open(beside, "wb") as f:
    f.write(data.replace(b"qwen3vl_merger", b"qwen9vl_merger"))
equal(run(model)[0], blind, "a text is answered")
_, err = run(model, "--image", A, code=111)
check("qwen9vl_merger" in err, "the reason", err)
_, err = run(model, "--mmproj", beside, code=111)
check("qwen9vl_merger" in err, "a named one is refused", err)
os.remove(beside)

# damaged, and not a picture to the model
with open(A, "rb") as f:
    data = f.read()
with open(path("cut.png"), "wb") as f:
    f.write(data[: len(data) // 2])
_, err = run(model, "--mmproj", projector, "--image", path("cut.png"), code=111)
check("picture 1: the PNG file is damaged" in err, err)

# what a picture becomes, before a model is loaded
plan = [NTX, "plan", model, "--mmproj", projector, "--ram", "1G", "--image"]
said = subprocess.run(plan + ["160x96", "--json"], capture_output=True, text=True)
equal(said.returncode, 0, said.stderr)
image = json.loads(said.stdout)["image"]
equal((image["seen"], image["columns"], image["rows"], image["tokens"]), ([160, 96], 20, 12, 240), "the plan's image")
check(image["bytes"] > 50000, "memory for it", image)
whole = json.loads(said.stdout)

# with too little memory for all of the projector, its weights are read for each picture: the same text
little = whole
for _ in range(20):  # what pictures take depends on the budget, too
    if little["projector"]["streams"]:
        break
    short = str(little["smallest"] - 1)
    said = subprocess.run([*plan[:5], "--ram", short, "--json"], capture_output=True, text=True)
    equal(said.returncode, 0, said.stderr)
    little = json.loads(said.stdout)
equal((whole["projector"]["streams"], little["projector"]["streams"]), (False, True), "the plan's projector")
check(little["projector"]["bytes"] < whole["projector"]["bytes"], (little, whole))
equal(run(model, "--mmproj", projector, "--image", A, "--ram", short)[0], seen, "with a projector that streams")
said = subprocess.run(plan + ["160x96"], capture_output=True, text=True)
check("160 x 96 pixels, seen as 160 x 96: 20 x 12 rows, 240 tokens of context" in said.stdout, said)
for size, words in (("160", "is no size"), ("3000x3", "too narrow"), ("0x5", "is no size")):
    said = subprocess.run(plan + [size], capture_output=True, text=True)
    check(said.returncode == 111 and words in said.stderr, size, said)
