# SPDX-License-Identifier: Apache-2.0
"""talks.py: generates conversations of the chat model.

Tool calls whose results are told, facts that were told before, JSON answers, small talk, questions about a story. A
conversation is {"messages", "tools"} as the OpenAI API has them; TEMPLATE makes text of it.
"""

import json

import corpus
import words as W

TEMPLATE = """{%- if tools or messages[0].role == "system" -%}
<|im_start|>system
{% if messages[0].role == "system" %}{{ messages[0].content }}
{% endif %}{% if tools %}Tools:
{% for t in tools %}{{ t.function.name }}(\
{% for p in t.function.parameters.properties or {} %}{{ p }}{% if not loop.last %}, {% endif %}{% endfor %})
{% endfor %}{% endif %}<|im_end|>
{% endif %}{% for m in messages %}{% if m.role != "system" %}<|im_start|>{{ m.role }}
{{ m.content or "" }}{% if m.tool_calls %}{% for c in m.tool_calls %}\
{% if m.content or not loop.first %}{{ "\\n" }}{% endif %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TOOLS = {
    "where_is": ["name"],
    "who_has": ["thing"],
    "list_things": ["place"],
    "add": ["a", "b"],
    "move": ["name", "place"],
    "weather": ["place"],
}
SYSTEMS = [
    "You are a helpful assistant.",
    "Be brief.",
    "You are a friendly helper.",
    "You answer questions about a small world.",
    "Use the tools.",
    "You are a helpful assistant. Use the tools when you need them.",
]


def tool(name):
    kinds = {p: {"type": "integer" if name == "add" else "string"} for p in TOOLS[name]}
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": kinds, "required": TOOLS[name]}},
    }


def both(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


class Talk:
    def __init__(self, rng, held):
        self.r, self.held = rng, held
        self.messages, self.tools = [], []
        self.told = {}  # name: place

    def pair(self):
        """A person and a thing; of the held-out pairs, or not."""
        while True:
            name, thing = self.r.choice(W.GIRLS + W.BOYS), self.r.choice(W.THINGS)
            if corpus.pair_held(name, thing) == self.held:
                return name, thing

    def place(self):
        return self.r.choice(sorted(W.PLACES))

    def user(self, *forms):
        self.messages.append({"role": "user", "content": self.r.choice(forms)})

    def say(self, text):
        self.messages.append({"role": "assistant", "content": text})

    def call(self, *calls):
        """calls: (name, arguments, result). A result is a word, or JSON."""
        made = [
            {"id": f"call_{len(self.messages)}_{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a, _) in enumerate(calls)
        ]
        self.messages.append({"role": "assistant", "content": None, "tool_calls": made})
        for c, (_, _, result) in zip(made, calls):
            self.messages.append({"role": "tool", "tool_call_id": c["id"], "content": result})

    def as_result(self, key, value):
        return self.r.choice([value if isinstance(value, str) else json.dumps(value), json.dumps({key: value})])

    def offers(self, *names):
        """Whether all of these tools are there; if not, says so."""
        if all(n in self.tools for n in names):
            return True
        self.say("I have no tool for that.")
        return False

    # --- exchanges with tools

    def find_place(self, name, place):
        return ("where_is", {"name": name}, self.as_result("place", self.r.choice([place, place, corpus.at(place)])))

    def where(self):
        name, place = self.pair()[0], self.place()
        self.user(
            f"Where is {name}?",
            f"Where is {name} now?",
            f"Can you find {name}?",
            f"I am looking for {name}. Where is {'she' if name in W.GIRLS else 'he'}?",
            f"In what place is {name}?",
        )
        if self.offers("where_is"):
            self.call(self.find_place(name, place))
            self.say(f"{name} is {corpus.at(place)}.")

    def where_two(self):
        names = self.r.sample(W.GIRLS + W.BOYS, 2)
        places = [self.place(), self.place()]
        self.user(
            f"Where are {both(names)}?", f"Where is {names[0]} and where is {names[1]}?", f"Can you find {both(names)}?"
        )
        if self.offers("where_is"):
            self.call(*(self.find_place(n, p) for n, p in zip(names, places)))
            self.say(both([f"{n} is {corpus.at(p)}" for n, p in zip(names, places)]) + ".")

    def who(self):
        name, thing = self.pair()
        self.user(f"Who has the {thing}?", f"Who is holding the {thing}?", f"Who has the {thing} now?")
        if self.offers("who_has"):
            self.call(("who_has", {"thing": thing}, self.as_result("name", name)))
            self.say(f"{name} has the {thing}.")

    def who_where(self):
        name, thing = self.pair()
        place = self.place()
        self.user(
            f"Who has the {thing}, and where is that?",
            f"Where is the one who has the {thing}?",
            f"Who has the {thing}? And where is that person?",
        )
        if self.offers("who_has", "where_is"):
            self.call(("who_has", {"thing": thing}, self.as_result("name", name)))
            self.call(self.find_place(name, place))
            self.say(f"{name} has the {thing} and is {corpus.at(place)}.")

    def list_in(self, place):
        things = self.r.sample(W.THINGS, self.r.choice([0, 1, 2, 2, 3]))
        call = ("list_things", {"place": place}, self.as_result("things", things))
        return call, (
            f"There is nothing {corpus.at(place)}."
            if not things
            else (
                f"There {'is' if len(things) == 1 else 'are'} {both([corpus.article(t) for t in things])}"
                f" {corpus.at(place)}."
            )
        )

    def things(self):
        place = self.place()
        self.user(
            f"What is {corpus.at(place)}?",
            f"What things are {corpus.at(place)}?",
            f"List the things {corpus.at(place)}.",
            f"Which things are {corpus.at(place)}?",
        )
        if self.offers("list_things"):
            call, said = self.list_in(place)
            self.call(call)
            self.say(said)

    def things_by(self):
        name, place = self.pair()[0], self.place()
        self.user(
            f"What things are in the place where {name} is?",
            f"Where is {name}, and what is there?",
            f"Find {name} and list the things there.",
        )
        if self.offers("where_is", "list_things"):
            self.call(self.find_place(name, place))
            call, said = self.list_in(place)
            self.call(call)
            self.say(f"{name} is {corpus.at(place)}. {said}")

    def sum(self):
        a, b = self.r.randint(0, 99), self.r.randint(0, 99)
        self.user(f"What is {a} plus {b}?", f"Add {a} and {b}.", f"What is {a} + {b}?", f"How much is {a} and {b}?")
        if self.offers("add"):
            self.call(("add", {"a": a, "b": b}, self.as_result("sum", a + b)))
            self.say(f"{a} plus {b} is {a + b}.")

    def move(self):
        name, place = self.pair()[0], self.place()
        self.user(
            f"Move {name} to the {place}.",
            f"Please bring {name} to the {place}.",
            f"{name} must go to the {place}.",
            f"Send {name} to the {place}.",
        )
        if self.offers("move"):
            self.call(
                ("move", {"name": name, "place": place}, self.r.choice(["ok", "done", '{"ok": true}', "true", "null"]))
            )
            self.say(f"{name} is {corpus.at(place)} now.")

    def weather(self):
        place, sky = self.place(), self.r.choice(sorted(W.WEATHER))
        self.user(
            f"How is the weather {corpus.at(place)}?",
            f"What is the weather like {corpus.at(place)}?",
            f"Is it sunny {corpus.at(place)}?",
        )
        if self.offers("weather"):
            self.call(("weather", {"place": place}, self.as_result("weather", sky)))
            self.say(f"It is {sky} {corpus.at(place)}.")

    # --- without

    def tell(self):
        name, place = self.pair()[0], self.place()
        self.told[name] = place
        self.user(f"{name} is {corpus.at(place)}.", f"{name} went to the {place}.", f"I saw {name} {corpus.at(place)}.")
        self.say(f"Good, {name} is {corpus.at(place)}.")

    def recall(self):
        if not self.told or self.r.random() < 0.15:
            name = self.r.choice([n for n in W.GIRLS + W.BOYS if n not in self.told])
        else:
            name = self.r.choice(sorted(self.told))
        self.user(f"Where is {name}?", f"Where is {name} now?", f"Do you know where {name} is?")
        self.say(f"{name} is {corpus.at(self.told[name])}." if name in self.told else f"I do not know where {name} is.")

    def greet(self):
        asked, said = self.r.choice(
            [
                (("Hello!", "Hello", "Good morning!", "Hi!"), "Hello! What can I do for you?"),
                (("Thank you!", "Thank you.", "Thanks!"), "You are welcome."),
                (("Who are you?", "What are you?", "What is your name?"), "I am a small model that ntx trained."),
                (("Goodbye!", "Good night!", "Bye!"), "Goodbye!"),
            ]
        )
        self.user(*asked)
        self.say(said)

    def as_json(self):
        name, thing = self.pair()
        place, colour, n = self.place(), self.r.choice(W.COLOURS), self.r.randint(2, 20)
        many = self.r.choice(W.FOODS)[0]
        all = {"name": name, "place": place, "thing": thing, "colour": colour}
        text = self.r.choice(
            [
                f"{name} is {corpus.at(place)} with a {colour} {thing}.",
                f"{name} left the {colour} {thing} {corpus.at(place)}.",
                f"There is a {colour} {thing} {corpus.at(place)}. {name} has it.",
            ]
        )
        if self.r.random() < 0.4:
            text += f" {name} has {n} {many}."
            all |= {"count": n, "food": many}
        keys = self.r.sample(sorted(all), self.r.randint(1, min(4, len(all))))
        listed = both(keys)
        self.user(
            f"{text} Give me JSON with {listed}.",
            f"{text} Answer in JSON with the keys {listed}.",
            f"JSON with {listed}: {text}",
            f"Make JSON with {listed} of this: {text}",
        )
        self.say(json.dumps({k: all[k] for k in keys}))

    def story(self):
        text, facts = corpus.document(self.r, self.held, 0.4)
        if facts and len(text) < 900:
            q, a = facts[0]
            self.user(f"{text}\n{q}", f"{text} {q}")
            self.say(a)
            for q, a in facts[1 : self.r.randint(1, 4)]:
                self.user(q)
                self.say(a)

    def make(self):
        r = self.r
        kind = r.random()
        if kind < 0.62:
            self.tools = r.sample(sorted(TOOLS), r.choice([1, 2, 3, 3, 4, 6]))
            one = [
                ("where_is", self.where),
                ("where_is", self.where_two),
                ("who_has", self.who),
                ("who_has", self.who_where),
                ("list_things", self.things),
                ("where_is", self.things_by),
                ("add", self.sum),
                ("move", self.move),
                ("weather", self.weather),
            ]
            for _ in range(r.choice([1, 1, 2, 3])):
                pick = r.choice(
                    [f for n, f in one if n in self.tools]
                    if r.random() < 0.92
                    else [f for _, f in one] + [self.greet, self.as_json]
                )
                pick()
        elif kind < 0.78:
            for _ in range(r.choice([1, 1, 2, 3])):
                self.as_json()
        elif kind < 0.90:
            for _ in range(r.randint(2, 6)):
                r.choice([self.tell, self.tell, self.recall, self.recall, self.greet])()
        else:
            self.story()
            if r.random() < 0.3:
                self.greet()
        if r.random() < 0.5:
            self.messages.insert(0, {"role": "system", "content": r.choice(SYSTEMS)})
        return {"messages": self.messages, "tools": [tool(n) for n in self.tools]}


def talk(rng, held):
    while True:
        t = Talk(rng, held).make()
        if any(m["role"] == "user" for m in t["messages"]):
            return t
