#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random texts under the masks of 500 schemas are valid for python-jsonschema.

Part of tests/run --long; NTX_CLIENTS names an environment that has the package."""

import json
import os
import subprocess
import sys
import tempfile
import venv

if __name__ == "__main__" and len(sys.argv) == 1:
    if not os.environ.get("NTX_LONG"):
        print("skipped: packages from PyPI are part of tests/run --long (NTX_LONG is set there)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="ntx-jsonschema-") as tmp:
        home = os.environ.get("NTX_CLIENTS") or tmp
        python = os.path.join(home, "bin", "python")
        if home == tmp:
            venv.create(tmp, with_pip=True)
            got = subprocess.run(
                [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "jsonschema"],
                capture_output=True,
                text=True,
                timeout=900,
            )
            if got.returncode:
                print("skipped: PyPI is not reached:", got.stderr.strip().splitlines()[-1] if got.stderr else "")
                sys.exit(77)
        sys.exit(subprocess.run([python, __file__, "inside"]).returncode)

import jsonschema  # noqa: E402


def main():
    texts = 0
    with tempfile.TemporaryDirectory(prefix="ntx-jsonschema-") as tmp:
        for seed in range(25, 29):
            path = os.path.join(tmp, "drawn")
            subprocess.run(
                [os.path.join(os.environ["NTX_BUILD"], "tests", "test_grammar-schemas"), str(seed), "500", path],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            for line in open(path):
                schema, text = json.loads(line)
                schema, v = json.loads(schema), json.loads(text)
                jsonschema.Draft202012Validator.check_schema(schema)
                errors = [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(v)]
                assert not errors, (schema, text, errors[0])
                texts += 1
    assert texts > 7000, texts
    print(texts, "texts are valid by jsonschema, too")


main()
