#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cases.json: templates of our own, each with what transformers' environment makes of it. Needs transformers and jinja2 (see oracle.py)."""

import json
import os

import oracle

V = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_generation_prompt": True,
    "messages": [
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": "Été <b>?\n"},
        {
            "role": "assistant",
            "content": "<think>\nhm\n</think>\n\nOui.",
            "tool_calls": [
                {
                    "type": "function",
                    "id": "c1",
                    "function": {"name": "f", "arguments": {"a": 1, "b": [True, None, 1.5], "c": "é\"\\\n"}},
                }
            ],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "array"}},
                    "required": ["a"],
                },
            },
        }
    ],
    "xs": [3, 1, 2, 1],
    "words": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": 2, "C": 3, "items": "mine"},
    "n": 7,
    "f": 2.5,
    "s": "Hello, World",
    "e": "",
    "rows": [{"k": "x", "v": 1}, {"k": "y", "v": 2}, {"k": "x", "v": 3}, {"v": 4}],
    "deep": {"l": [{"m": ["z"]}]},
    "no": None,
}

TEXTS = r"""
{{ n }} {{ f }} {{ s }} {{ no }} {{ missing }} {{ true }} {{ False }} {{ none }}
{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -n }} {{ +n }} {{ 10 - 3 - 2 }}
{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 0.1 + 0.2 }} {{ 100.0 }} {{ 123456789.125 }} {{ 7.0 // 2 }} {{ 7.5 % 2 }} {{ 1_000 }} {{ 0x1f }}
{{ 'a' + 'b' }} {{ 'a' ~ 1 ~ none ~ missing ~ 2.0 }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1, 2) + (3,) }}
{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 1 }} {{ [1, 2] == [1, 2] }} {{ (1,) == [1] }} {{ [1, 2] < [1, 3] }} {{ 2 != 3 }} {{ 3 >= 3 }}
{{ 'ell' in s }} {{ 'x' not in s }} {{ 1 in xs }} {{ 'b' in d }} {{ 9 in xs }} {{ 'a' in missing }} {{ not 1 in xs }} {{ '' in s }}
{{ true and 'x' }} {{ '' or 'y' }} {{ 0 or none }} {{ not '' }} {{ not not 1 }} {{ 1 and 2 and 3 }} {{ [] or {} }}
{{ 'a' if n > 5 else 'b' }} {{ 'a' if n > 9 }} {{ 'a' if n > 9 else 'b' if n > 6 else 'c' }} {{ ('x' if true) ~ 'y' }}
{{ s[0] }}{{ s[-1] }}{{ s[99] }} {{ s[1:4] }} {{ s[:5] }} {{ s[7:] }} {{ s[-5:-1] }} {{ s[::2] }} {{ s[::-1] }} {{ xs[1:] }} {{ xs[::-1] }} {{ xs[:-1] }} {{ xs[5:] }} {{ xs[-2:] }} {{ 'été'[1] }} {{ 'été'[::-1] }}
{{ d.b }} {{ d['a'] }} {{ d['items'] }} {{ d.zzz }} {{ d['zzz'] }} {{ deep.l[0].m[0] }} {{ deep['l'][0]['m'][-1] }} {{ deep.l.0.m }} {{ no.x }} {{ n.x }} {{ s.x }}
{{ [1, 'a', "it's", 'q"q', none, true, 1.5, {'k': (1,)}, []] }} {{ {'a': 'x\ny\t\\', 1: 2} }} {{ (1, 2) }} {{ () }} {{ ['\x01', 'é', '\u200b', '\U0001F600'] }}
{{ 'x\ty\'z' }} {{ "a\"b" }} {{ 'a\qb' }} {{ 'con' 'cat' }} {{ '\u00e9\x41\101' }}
{{ messages[0].content | trim }}|{{ messages[0]['content'] }}| {{ 'xxaxx' | trim('x') }} {{ n | string | length }} {{ s | length }} {{ xs | length }} {{ d | count }} {{ missing | length }} {{ 'été' | length }}
{{ missing | default('d') }} {{ e | default('d') }}{{ e | default('d', true) }} {{ no | default('d') }} {{ no | d('d', boolean=True) }} {{ missing | d }}
{{ xs | join(', ') }} {{ words | join }} {{ rows | join('-', attribute='v') }} {{ s | join('.') }} {{ d | join(',') }}
{{ s | upper }} {{ s | lower }} {{ 'ab cd' | title }} {{ 'hELLO w' | capitalize }} {{ 'é' | upper }} {{ "it's o'clock x-y" | title }}
{{ d | dictsort }} {{ d | dictsort(true) }} {{ {'x': 2, 'Y': 1} | dictsort(by='value') }} {{ {'x': 2, 'Y': 1} | dictsort(false, 'value', true) }} {% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}
{{ xs | sort }} {{ xs | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ rows[:3] | sort(attribute='k') }} {{ xs | unique | list }} {{ words | unique | list }}
{{ xs | min }} {{ xs | max }} {{ xs | sum }} {{ rows | sum(attribute='v') }} {{ xs | first }} {{ xs | last }} {{ [] | first }} {{ xs | reverse | list }} {{ s | reverse }} {{ words | max }}
{{ rows | selectattr('k', 'defined') | list | length }} {{ rows | selectattr('k', 'equalto', 'x') | map(attribute='v') | list }} {{ rows | rejectattr('v', 'gt', 2) | list }} {{ xs | select('odd') | list }} {{ xs | reject('equalto', 1) | list }} {{ words | map('upper') | join(',') }} {{ rows | map(attribute='k', default='?') | list }} {{ xs | select | list }} {{ no | selectattr('x') | list }}
{{ d | items | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ missing | items | list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }} {% for k, v in messages[0].items() %}{{ k }}:{{ v }};{% endfor %}
{{ 'a,b,c' | replace(',', ';') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ 'x.y'.replace('.', '') }}
{{ '5' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(3) }} {{ 3.9 | int }} {{ ' 12 ' | int }} {{ '1.5' | float }} {{ 'q' | float }} {{ -3 | abs }} {{ 2.567 | round(1) }} {{ 2.5 | round }} {{ 7 | round }} {{ 2.1 | round(0, 'ceil') }} {{ '3.7' | int }} {{ 'ff' | int(0, 16) }}
{{ "a\nb\n\nc" | indent }}|{{ "a\nb" | indent(2, true) }}|{{ "a\n\nb" | indent(1, blank=true) }}|{{ "a\nb" | indent('> ') }}|{{ "a\nb\n" | indent(2) }}|
{{ tools[0] | tojson }}
{{ tools | tojson(indent=2) }}
{{ messages[2].tool_calls[0].function.arguments | tojson }} {{ 'é<&>' | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ [] | tojson(indent=4) }} {{ {} | tojson }} {{ [1, {'a': []}] | tojson(indent=1) }} {{ "\x7f\x1f/" | tojson }}
{{ d | tojson(separators=(',', ':')) }} {{ d | tojson(sort_keys=true) }} {{ xs | tojson(indent=2, separators=(', ', ' : ')) }} {{ 1.0 | tojson }} {{ none | tojson }} {{ {1: true, none: 2, false: 3} | tojson }} {{ (1, 2) | tojson }}
{{ ('<b>' | safe) + '<i>' }} {{ '<b>' + '<i>' }} {{ ('a' | safe) ~ '<' }} {{ '<&"\'>' | e }} {{ '<' + ('>' | safe) }} {{ s | safe }}
{{ '%s-%d-%05.2f|%5s|%-5s|%x' | format('a', 3, 1.5, 'r', 'l', 255) }} {{ '%s %s' % (1, 'b') }} {{ '%r' % 'q' }} {{ '%%' % () }} {{ '%(a)s' % {'a': 1} }} {{ '%+d' % 3 }}
{{ '{} {} {0}'.format(1) if false else '{} {}'.format(1, 'b') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}:{y:>4}|{z:<4}|'.format(x=1, y=2, z='q') }} {{ '{:.2f} {:05d} {{}}'.format(1.234, 42) }} {{ '{a[0]}{b.k}'.format(a=[9], b={'k': 1}) if false else '' }}
{{ 'a b  c'.split() }} {{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b '.split(' ') }} {{ 'a b c d'.split(none, 2) }} {{ 'abc'.split('</think>')[-1] }} {{ ''.split(',') }} {{ ''.split() }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ '\nx\n'.strip('\n') }}|{{ 'abcba'.strip('ab') }}|{{ '\u3000x\u00a0'.strip() }}|{{ 'aXa'.lstrip('a') }}
{{ s.startswith('Hell') }} {{ s.endswith(('x', 'ld')) }} {{ s.find('World') }} {{ s.find('q') }} {{ s.count('l') }} {{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ 'ab'.capitalize() }} {{ s.index(',') }} {{ s.rfind('l') }} {{ 'é,x'.find('x') }}
{{ 'a\nb\r\nc'.splitlines() }} {{ 'k=v=w'.partition('=') }} {{ 'k=v=w'.rpartition('=') }} {{ 'xyz'.removeprefix('x') }} {{ 'xyz'.removesuffix('z') }} {{ '12'.isdigit() }} {{ 'a1'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'A'.isupper() }} {{ 'a'.islower() }} {{ ','.join(['a', 'b']) }} {{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }} {{ 'kq'.partition('=') }} {{ 'ab'.center(5) }}|
{{ x is defined }} {{ s is defined }} {{ x is undefined }} {{ no is none }} {{ s is string }} {{ d is mapping }} {{ xs is iterable }} {{ s is iterable }} {{ n is iterable }} {{ d is sequence }} {{ xs is sequence }} {{ n is sequence }} {{ n is number }} {{ f is number }} {{ true is number }} {{ n is integer }} {{ true is integer }} {{ f is float }} {{ true is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is gt 3 }} {{ 1 is in xs }} {{ n is not none }} {{ s is not string }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ x is not defined or s is defined }} {{ missing is iterable }} {{ missing is string }} {{ n is ne 3 and n is lt 9 }} {{ no is sameas none }}
{% for x in xs %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }}/{{ loop.cycle('a', 'b') }}/{{ loop.changed(x) }};{% endfor %}
{% for x in xs if x > 1 %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last }}{% endfor %} {% for x in [] %}x{% else %}none{% endfor %} {% for x in xs if x > 9 %}x{% else %}else{% endfor %} {% for x in missing %}x{% endfor %} {% for c in 'été' %}{{ c }}.{% endfor %} {% for k in d %}{{ k }}{% endfor %}
{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }};{% endfor %}{% for k, (a, b) in [('x', (1, 2))] %}{{ k }}{{ a }}{{ b }}{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 1, -2) %}{{ i }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1, [2, [3]], 4] recursive %}{% if x is number %}{{ x }}@{{ loop.depth }}{% else %}({{ loop(x) }}){% endif %}{% endfor %}
{% set x = 1 %}{% for i in xs %}{% set x = x + i %}{{ x }}{% endfor %}={{ x }} {% set ns = namespace(x=1, y='q') %}{% for i in xs %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }} {% set a, b = 1, 2 %}{{ a }}{{ b }} {% if true %}{% set y = 5 %}{% endif %}{{ y }} {% set z = 1, 2 %}{{ z }}
{% set t %}a{{ n }}b{% endset %}[{{ t }}] {% set u | upper | trim %} x{% set v = 1 %} {% endset %}[{{ u }}] {{ v is defined }} {{ t | length }}
{% macro m(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(1, c=3) }} {{ m(b='x', a='y') }} {{ m() }} {{ m(*[1, 2]) }} {{ m(**{'a': 5}) }} {{ m(1) | length }}
{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, k=3) }} {% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(4) }} {% set g = 1 %}{% macro h() %}{{ g }}{{ q }}{% endmacro %}{% set q = 2 %}{{ h() }}{% for q in [9] %}{{ h() }}{% endfor %}
{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ n }}{% endcall %} {% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each(xs) %}[{{ i }}]{% endcall %}
{% filter upper %}a{{ s }}{% endfilter %} {% filter replace('a', 'b') | trim %} aaa {% endfilter %} {% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% generation %}g{{ n }}{% endgeneration %}
{% if n == 1 %}a{% elif n == 7 %}b{% elif n == 8 %}c{% else %}d{% endif %} {% if missing %}x{% endif %} {% if [] or e or 0 %}x{% else %}y{% endif %}
{% raw %}{{ not }} {% this %} {# nor #}{% endraw %} {# gone #}| {%- raw -%} {{ x }} {%- endraw -%} |
a {{- 'b' -}} c {%- if true -%} d {%- endif -%} e {{ 'f' }} g {#- h -#} i
{{ strftime_now('%Y-%m-%d %H:%M %B %d %b') }} {{ raise_exception is defined }} {{ strftime_now is defined }} {{ range(3) | list }} {{ dict(a=1, b=2) }} {{ namespace(a=1).a }} {{ dict({'z': 1}, y=2) }}
{{ "}}" }} {{ '%}' }} {{ {'a': {'b': 1}} }} {{ {'a': 1}['a'] }} {{ '{{' }}
{{ [1, 2, 3] | batch(2) | list }} {{ rows[:3] | groupby('k') | map('first') | list }} {{ 'a b' | wordcount }} {{ d | attr('b') is defined }} {{ -xs[0] }} {{ -3 | string }} {{ s | lower | length + 1 }}
{{ (1 if true else 2) + 3 }} {{ 'x' in 'xyz' and 'a' or 'b' }} {{ 2 * 3 ~ 4 }} {{ 'a' ~ 'b' == 'ab' }} {{ not true == false }} {{ 5 - -3 }} {{ 2 ** 3 ** 2 }} {{ (n - 1) // 2 * 2 }}
{{ xs == xs[:] }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ (messages | last).role }} {{ messages[-1].role }} {{ messages[1:] | length }} {{ messages | map(attribute='role') | join(' ') }}
""".strip("\n").split("\n")

BLOCKS = [
    "{% for m in messages %}\n  {% if m.role == 'user' %}\n    {{ m.content }}\n  {% endif %}\n{% endfor %}\nend\n",
    "{%- for m in messages -%}\n    {{- m.role + ': ' + m.content | trim }}\n{% endfor -%}\n\n  tail\n\n",
    "a\n  {%+ if true %}\n  b\n  {%+ endif +%}\n  c\n",
    "a\n\t{# comment #}\n  b {# c #}\n\n{#- x -#}\n  d\n",
    "  {% set x = 1 %}  {% set y = 2 %}\n  {{ x }}  \n  {{ y }}\n\n",
    "\r\nx\r\n{% if true %}\r\ny\r{% endif %}\r\nz\r\n",
    "{% if true %}\n\n  x{% endif %}\n\n\n",
    "{{ 'a' }}\n{{ 'b' -}}\n\n   c\n   {{- 'd' }}\n",
    "{% macro m(x) -%}\n  [{{ x }}]\n{%- endmacro %}\n{{ m(1) }}{{ m(2) }}\n",
    "{% for x in xs %}{{ x }}{% if not loop.last %}, {% endif %}\n{% endfor %}",
    "{% raw %}\n  {{ x }}\n{% endraw %}\nend",
    "{%- set ns = namespace(last=-1) %}{%- for m in messages[::-1] %}{%- set i = (messages | length - 1) - loop.index0 %}{%- if ns.last < 0 and m.role == 'user' %}{%- set ns.last = i %}{%- endif %}{%- endfor %}{{ ns.last }}",
    "{%- for m in messages %}{%- if m.tool_calls %}{%- for t in m.tool_calls %}{%- set t = t.function if t.function else t %}\n<tool_call>\n{\"name\": \"{{ t.name }}\", \"arguments\": {{ t.arguments if t.arguments is string else t.arguments | tojson }}}\n</tool_call>\n{%- endfor %}{%- endif %}{%- endfor %}",
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + (m['content'].split('</think>')[-1].lstrip('\n') if '</think>' in m['content'] else m['content']) + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 1) and false %}{{ raise_exception('alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}{{ eos_token if m.role == 'assistant' }}{% endfor %}",
]

# Templates that both transformers and ntx refuse.
REFUSED = [
    "{{ raise_exception('no ' ~ n) }}",
    "{{ missing.x }}",
    "{{ missing + 'a' }}",
    "{{ missing() }}",
    "{{ n() }}",
    "{{ 1 + 'a' }}",
    "{{ 'a' < 1 }}",
    "{{ 1 // 0 }}",
    "{% for x in n %}{% endfor %}",
    "{% for x in no %}{% endfor %}",
    "{{ n | length }}",
    "{{ 'a' in n }}",
    "{{ 1 in s }}",
    "{{ s | nofilter }}",
    "{{ s is notest }}",
    "{{",
    "{{ }}",
    "{% if %}",
    "{% if true %}",
    "{% endfor %}",
    "{% for x in xs %}",
    "{{ 'a }}",
    "{# x",
    "{% nothing %}",
    "{{ (1 }}",
    "{{ [1, }}",
    "{{ {1} }}",
    "{{ a b }}",
    "{% set %}",
    "{% set n.x = 1 %}",
    "{% break %}",
    "{{ 1 | }}",
    "{% macro %}{% endmacro %}",
    "{% macro m() %}{% endmacro %}{{ m(1) }}",
    "{% macro m() %}{% endmacro %}{{ m(a=1) }}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{{ range(1000000) | list }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ missing | tojson }}",
    "{{ '%d' % 'x' }}",
    "{{ '%s' % (1, 2) }}",
    "{{ xs.nothing() }}",
    "{{ '{}'.format() }}",
    "{{ messages.x.y }}",
    "{{ d | dictsort(by=1) + 1 }}",
    "{{ [1, 'a'] | sort }}",
    "{% include 'x' %}",
    "{{ ''.join([1]) }}",
    "{{ loop.index }}",
    "{% for x in xs %}{{ loop(x) }}{% endfor %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{{ 'a'.index('b') }}",
]

cases = []
for text in TEXTS + BLOCKS:
    try:
        oracle.render(text, V)
    except Exception as e:
        raise SystemExit("%s\n%r" % (text, e))
    cases.append({"template": text, "variables": V, "want": oracle.render(text, V)})
for text in REFUSED:
    try:
        got = oracle.render(text, V)
    except Exception:
        cases.append({"template": text, "variables": V, "want": None})
    else:
        raise SystemExit("%r is not refused: %r" % (text, got))

used = json.loads(json.dumps(V))
lines = [
    "{\"template\": %s, \"want\": %s}"
    % (json.dumps(c["template"], ensure_ascii=False), json.dumps(c["want"], ensure_ascii=False))
    for c in cases
]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.json"), "w", encoding="utf-8") as f:
    f.write("{\"variables\": %s,\n\"cases\": [\n%s\n]}\n" % (json.dumps(used, ensure_ascii=False), ",\n".join(lines)))
print("%d cases" % len(cases))
