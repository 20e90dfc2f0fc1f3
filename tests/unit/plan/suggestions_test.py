#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever `ntx plan` suggests is possible, and works when it is pasted into a command line."""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, check, equal, make_model  # noqa: E402

NTX, GIB = os.path.join(BIN, "ntx"), 1 << 30
ENV = dict(os.environ, COLUMNS="120")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": GIB, "T": 1 << 40}


def ntx(*args, code=0, **more):
    p = subprocess.run([NTX, *args], capture_output=True, text=True, env=ENV, timeout=120, **more)
    equal(p.returncode, code, "ntx %s: %s%s" % (" ".join(args), p.stdout, p.stderr))
    return p.stdout + p.stderr


def size_of(text):
    m = re.fullmatch(r"(\d+)([KMGT]?)", text)
    check(m, "no size that --ram takes:", text)
    return int(m[1]) * UNITS[m[2]]


def test_settings(model, machine, more=()):
    """Each setting brings the predicted gain; no hardware before the settings, and one line of it at most."""
    args = ["plan", model, *(["--machine", machine] if machine else []), *more]
    out, was = ntx(*args), json.loads(ntx(*args, "--json"))
    for advice in was["advice"]:
        check("nan" not in str(advice) and "inf" not in str(advice) and advice["gain"] >= 1.05, advice)
        check("GPU" not in advice["change"], "a GPU that is not there:", advice)
        if advice["options"]:
            check(advice["options"] in out or advice["kind"] != "setting", advice, out)
            now = json.loads(ntx(*args, *advice["options"].split(), "--json"))
            gain = now["predicted_tok_s"] / was["predicted_tok_s"]
            check(abs(gain / advice["gain"] - 1) < 0.02, advice, "gains", gain)
    lines = re.findall(r"^(Gain:|To buy:|        ) +(?=[\d.]+ times)", out, re.M)
    check(lines.count("To buy:") <= 1 and "To buy:" not in lines[:-1], out)
    ntx("plan", model, *args[2:], "--ram", re.search(r"\(--ram (\w+)\)", out)[1])  # the budget of the first line
    for size in re.findall(r"--ram (\w+)", out):
        size_of(size)
    least = re.search(r"; (?:about )?--ram (\w+)", out)[1]
    if "about" not in out.split("; ")[1]:
        ntx("plan", model, *args[2:], "--ram", least)
    return out, was


def test_memory():
    """Neither a budget nor memory beyond the model, or beyond the machine."""
    for name, ram, budget in (
        ("llama-8b@q8_0", 64, "4G"),
        ("llama-70b@q4_k_m", 32, "10G"),
        ("gpt-oss-20b@mxfp4", 8, "6G"),
    ):
        out, j = test_settings(name, "ram=%dG" % ram, ["--ram", budget])
        for advice in j["advice"]:
            bought = re.match(r"(\d+) GiB of memory", advice["change"])
            if advice["options"].startswith("--ram "):
                asked = size_of(advice["options"].split()[1])
                check(asked <= 0.85 * ram * GIB and asked <= 1.3 * j["bytes_model"] + 2 * GIB, advice, out)
            if bought:
                check(int(bought[1]) <= 4 * ram and 0.85 * ram * GIB < j["bytes_model"] + GIB, advice, out)
    out, _ = test_settings("llama-8b@q8_0", "ram=64G", ["--ram", "4G"])
    check("To buy" not in out and "which holds all of it" in out, out)


def test_token():
    """A token uses all weights, or of the experts the chosen ones: 8 of 128, which are 17.4 of 18.4 GB."""
    dense = json.loads(ntx("plan", "llama-8b@q4_k_m", "--machine", "ram=16G", "--json"))
    routed = json.loads(ntx("plan", "qwen3-30b-a3b@q4_k_m", "--machine", "ram=16G", "--json"))
    check(dense["bytes_token"] == dense["bytes_model"], dense)
    experts = (routed["bytes_model"] - routed["bytes_token"]) / (1 - 8 / 128)
    check(0.93 < experts / routed["bytes_model"] < 0.97, routed)
    check("8 of 128 experts used: 1.92 GB a token" in ntx("plan", "qwen3-30b-a3b@q4_k_m", "--machine", "ram=16G"))


def test_here(folder, model):
    """On this machine; the smaller type comes with a command that runs."""
    big = make_model(
        os.path.join(folder, "big.gguf"),
        "--layers",
        "6",
        "--embd",
        "512",
        "--ff",
        "1536",
        "--heads",
        "8",
        "--type",
        "F32",
    )
    for path in (model, big):
        out, _ = test_settings(path, None, ["--ram", "12M", "--ctx", "64"] if path == model else [])
    out = ntx("plan", big, "--machine", "ram=64G,drive=1G", "--ram", "40M", "--ctx", "64")
    commands = re.findall(r"`(ntx quantize [^`]*)`", out)
    check(len(commands) == 1, out)
    ntx(*commands[0].split()[1:], "--dry-run", cwd=folder)
    odd = os.path.join(folder, "a b;c.gguf")
    os.rename(big, odd)
    check("`ntx quantize" not in ntx("plan", odd, "--machine", "ram=64G,drive=1G", "--ram", "40M", "--ctx", "64"), out)


def test_refused(model):
    """A budget that is too small: the size in the refusal is enough."""
    out = ntx("plan", model, "--ram", "100K", code=111)
    size = re.search(r"use --ram (\w+) or more", out)
    check(size, out)
    ntx("plan", model, "--ram", size[1])


def test_profiles(folder, model):
    """No profile, a broken one, one without rates, and no place for one: an answer, and one line on how to measure."""
    cache = os.path.join(folder, "cache")
    profile = os.path.join(cache, "ntx", "profile.json")
    os.makedirs(os.path.dirname(profile))
    for text, says in (
        (None, "No hardware profile was there"),
        ('{"ntx_profile": 1, "ram": {"gb_s": 1e999}}', "The hardware profile cannot be used"),
        ('{"ntx_profile": 1}', "How fast: unknown"),
    ):
        if text:
            with open(profile, "w") as f:
                f.write(text)
        ENV["XDG_CACHE_HOME"] = cache
        out = ntx("plan", model)
        check(says in out and not re.search(r"\bnan\b|\binf\b", out), text, out)
        if "How fast" not in says:
            equal(out.count("`ntx doctor`"), 1 + ("busy machine" in out), "notes on measuring: " + out)
        if text:
            with open(profile) as f:
                equal(f.read(), text, "a profile that cannot be used is its owner's")
        elif os.path.exists(profile):
            os.remove(profile)
    for name in ("XDG_CACHE_HOME", "HOME"):
        ENV.pop(name, None)
    out = ntx("plan", "llama-8b@q8_0", "--ram", "4G", cwd="/proc")
    check("those of a common desktop" in out and "`ntx doctor --dir DIR`" in out, out)


with tempfile.TemporaryDirectory(prefix="ntx-plan-") as d:
    ENV["XDG_CACHE_HOME"] = os.path.join(d, "first")
    small = make_model(os.path.join(d, "m.gguf"), "--layers", "4", "--embd", "256", "--ff", "768", "--heads", "4")
    test_memory()
    test_token()
    test_here(d, small)
    test_refused(small)
    test_profiles(d, small)
