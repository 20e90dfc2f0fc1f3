# SPDX-License-Identifier: Apache-2.0
"""The reference: the Jinja environment of transformers' apply_chat_template, taken from the source of the installed
package (transformers/utils/chat_template_utils.py), so that its other dependencies are not needed. `available` tells
whether it is installed."""

import ast
import datetime as real_datetime
import importlib.util
import json

NOW = 1767225600  # 2026-01-01 00:00:00 UTC
_WANTED = ("_cached_compile_jinja_template", "_alias_reasoning_fields")


class _Now(real_datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, real_datetime.timezone.utc)


def _load():
    spec = importlib.util.find_spec("transformers")
    if spec is None or importlib.util.find_spec("jinja2") is None:
        return None
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Version:
        @staticmethod
        def parse(text):
            return tuple(int(x) for x in text.split("."))

    path = spec.submodule_search_locations[0] + "/utils/chat_template_utils.py"
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    keep = [
        n
        for n in tree.body
        if (isinstance(n, ast.FunctionDef) and n.name in _WANTED)
        or (isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "_REASONING_FIELDS")
    ]
    space = {
        "jinja2": jinja2,
        "json": json,
        "datetime": _Now,
        "version": Version,
        "is_jinja_available": lambda: True,
        "no_type_check": lambda f: f,
        "ImmutableSandboxedEnvironment": jinja2.sandbox.ImmutableSandboxedEnvironment,
        "Extension": jinja2.ext.Extension,
        "ChatType": list,
        "contextmanager": __import__("contextlib").contextmanager,
    }
    exec(compile(ast.Module(keep, []), path, "exec"), space)
    return space


_space = _load()
available = _space is not None
_compiled = {}


def render(template, variables):
    """What apply_chat_template makes of it; raises what the template raises."""
    if template not in _compiled:
        _compiled[template] = _space["_cached_compile_jinja_template"](template)
    variables = json.loads(json.dumps(variables))
    if isinstance(variables.get("messages"), list) and all(isinstance(m, dict) for m in variables["messages"]):
        variables["messages"] = _space["_alias_reasoning_fields"](variables["messages"])
    return _compiled[template].render(**variables)
