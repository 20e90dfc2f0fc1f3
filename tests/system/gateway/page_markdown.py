# SPDX-License-Identifier: Apache-2.0
"""Texts for the chat page's test: Markdown with the elements that it must become, and texts that try to run code."""

# (text, the elements that it becomes)
MARKDOWN = [
    ("plain", "<p>plain</p>"),
    ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
    ("# Head\n## Second ##\n####### no", "<h1>Head</h1><h2>Second</h2><p>####### no</p>"),
    (
        "**bold** *em* ***both*** _em_ __bold__ ~~gone~~",
        "<p><strong>bold</strong> <em>em</em> <strong><em>both</em></strong> <em>em</em> <strong>bold</strong> "
        "<del>gone</del></p>",
    ),
    ("snake_case_name and 2 * 3 * 4 and a*b", "<p>snake_case_name and 2 * 3 * 4 and a*b</p>"),
    ("`a <b>` and ``x ` y``", "<p><code>a &lt;b&gt;</code> and <code>x ` y</code></p>"),
    ("\\*no em\\* \\`no code\\`", "<p>*no em* `no code`</p>"),
    ("- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
    ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    ("1. a\n\n   more\n2. b", "<ol><li><p>a</p><p>more</p></li><li>b</li></ol>"),
    ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
    ("a\n\n---\nb", "<p>a</p><hr><p>b</p>"),
    (
        "| a | b |\n|:-:|--:|\n| 1 | `x\\|y` |",
        '<div class="wide" tabindex="0"><table><thead><tr><th style="text-align: center;">a</th>'
        '<th style="text-align: right;">b</th></tr></thead><tbody><tr><td style="text-align: center;">1</td>'
        '<td style="text-align: right;"><code>x|y</code></td></tr></tbody></table></div>',
    ),
    (
        "```c++\nint x = a < b;\n```",
        '<div class="code"><header><span>c++</span><button type="button" aria-label="Copy this code">Copy</button>'
        '</header><pre tabindex="0">int x = a &lt; b;</pre></div>',
    ),
    (
        "~~~\n```\n**no**",
        '<div class="code"><header><span>code</span><button type="button" aria-label="Copy this code">Copy</button>'
        '</header><pre tabindex="0">```\n**no**</pre></div>',
    ),
    (
        "[a **b**](https://example.org/x_y_(z)) https://example.org/a_b.",
        '<p><a href="https://example.org/x_y_(z)" target="_blank" rel="noopener noreferrer nofollow" '
        'title="https://example.org/x_y_(z)">a **b**</a> <a href="https://example.org/a_b" target="_blank" '
        'rel="noopener noreferrer nofollow" title="https://example.org/a_b">https://example.org/a_b</a>.</p>',
    ),
    ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
    (
        "cost $5 and $6, but $a_1*b_2*c$ and \\(x_1\\)",
        '<p>cost $5 and $6, but <span class="maths">$a_1*b_2*c$</span> and <span class="maths">\\(x_1\\)</span></p>',
    ),
    ("$$\na_1 * b\n$$", '<span class="maths block">$$\na_1 * b\n$$</span>'),
    ("**open and *never closed", "<p>**open and *never closed</p>"),
]

# A text that has all of it, for layout and for streams.
LONG = (
    "\n\n".join(text for text, _ in MARKDOWN[:9])
    + "\n\n| "
    + " | ".join("column %d" % i for i in range(14))
    + " |\n|"
    + "---|" * 14
    + "\n| "
    + " | ".join("value%d" % i for i in range(14))
    + " |\n\n```python\n"
    + "x" * 300
    + "\n```\n\n"
    + "1. first\n   - inner\n2. second\n\n> quoted\n\nhttps://example.org/"
    + "y" * 300
    + "\n"
)

_CALL = "xss()"
_TAGS = [
    "<script>{}</script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "<iframe src='javascript:{}'></iframe>",
    "<body onload={}>",
    "<a href='javascript:{}'>a</a>",
    "<details open ontoggle={}>",
    "<video><source onerror={}></video>",
    "<input autofocus onfocus={}>",
    "<math><mtext></mtext><script>{}</script></math>",
    "<style>@import 'javascript:{}';</style>",
    "<object data='javascript:{}'></object>",
    "<form action='javascript:{}'><button>b</button></form>",
    "<meta http-equiv=refresh content='0;javascript:{}'>",
    "<base href='javascript:{}//'>",
    "</p></article><script>{}</script>",
    "<!--><script>{}</script-->",
    "<template><script>{}</script></template>",
    "<link rel=stylesheet href='javascript:{}'>",
    "<embed src='javascript:{}'>",
]
_URLS = [
    "javascript:{}",
    "JaVaScRiPt:{}",
    " javascript:{}",
    "java\tscript:{}",
    "java\nscript:{}",
    "&#106;avascript:{}",
    "javascript&colon;{}",
    "data:text/html,<script>{}</script>",
    "data:text/html;base64,PHNjcmlwdD54c3MoKTwvc2NyaXB0Pg==",
    "vbscript:{}",
    "file:///etc/passwd",
    "blob:{}",
    "\x01javascript:{}",
    "//javascript:{}",
    "https://example.org/'onmouseover='{}",
    'https://example.org/"onmouseover="{}',
]
_AROUND = ["{}", "**{}**", "# {}", "- {}", "> {}", "| {} |\n|---|\n| {} |"]
XSS = [around.replace("{}", tag.replace("{}", _CALL)) for tag in _TAGS for around in _AROUND[:3]]
XSS += [
    form.replace("{}", url.replace("{}", _CALL))
    for url in _URLS
    for form in ("[x]({})", "![x]({})", "<{}>", "[x](<{}> \"t\")")
]
XSS += [
    "```%s\n%s\n```" % (lang, _TAGS[0].replace("{}", _CALL))
    for lang in ("html", "\"><script>xss()</script>", "'onclick='xss()")
]
XSS += ["`%s`" % t.replace("{}", _CALL) for t in _TAGS[:4]]
XSS += [_AROUND[k].replace("{}", _TAGS[1].replace("{}", _CALL)) for k in (3, 4, 5)]
XSS += [
    "$%s$" % _TAGS[2].replace("{}", _CALL),
    "\\(%s\\)" % _TAGS[0].replace("{}", _CALL),
    "[a]: javascript:xss()\n\n[a]",
]
