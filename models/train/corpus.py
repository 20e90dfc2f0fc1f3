#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""corpus.py: writes the corpus of the demo models, without outside text.

Short stories and dialogues from a small world whose state is tracked, then questions whose answers follow from it.

  corpus.py --seed 1 --docs 90000 --out train.txt                   training: documents, an empty line after each
  corpus.py --seed 7 --docs 300 --held --out held.txt --questions held.jsonl

The held-out split has other seeds, and every document has at least one pair of person and thing that no training
document combines (one pair in twelve, chosen by a hash). A questions file has a line {"prompt", "answer"} for one
question of each document; the prompt is the story, then "Q: ...", and ends in "A:".
"""

import argparse
import json
import random
import re
import zlib

import words as W


def pair_held(name, thing):
    return zlib.crc32(f"{name}:{thing}".encode()) % 12 == 0


def cap(s):
    """With a capital letter at the beginning of each sentence."""
    return re.sub(r"(^|[.!?] )([a-z])", lambda m: m[1] + m[2].upper(), s)


def article(word):
    return ("an " if word[0] in "aeiou" or word == "honest" else "a ") + word


def at(place):
    return f"{W.PLACES[place]} the {place}"


class Person:
    def __init__(self, name):
        self.name = name
        self.she = name in W.GIRLS
        self.he, self.his, self.him = ("she", "her", "her") if self.she else ("he", "his", "him")
        self.kind = "girl" if self.she else "boy"
        self.been = []  # places
        self.place = self.feeling = None
        self.known = False  # to the reader

    @property
    def place(self):
        return self.now

    @place.setter
    def place(self, place):
        self.now = place
        self.been += [place] if place else []


class Thing:
    def __init__(self, name, colour):
        self.name, self.colour = name, colour
        self.place = self.owner = None  # where it lies, or who carries it
        self.coloured = False  # the text named its colour


def where_is(p):
    return f"Where is {p.name}?", f"Where is {p.name} now?", f"In what place is {p.name}?"


def who_has(t):
    return f"Who has the {t.name}?", f"Who is holding the {t.name}?"


class World:
    """The cast, the text so far, and what can be asked. Every event changes the state, told in one of several ways."""

    def __init__(self, rng, held):
        self.r = rng
        while True:
            names = rng.sample(W.GIRLS + W.BOYS, 3)
            things = rng.sample(W.THINGS, 3)
            if any(pair_held(n, t) for n in names for t in things) == held:
                break
        self.people = [Person(n) for n in names]
        self.things = [Thing(t, c) for t, c in zip(things, rng.sample(W.COLOURS, 3))]
        self.places = rng.sample(sorted(W.PLACES), 6)
        self.text, self.facts = [], []
        self.last = None  # who the last sentence was about
        self.weather = None

    # --- saying

    def say(self, who, *forms):
        """Adds a sentence; {P} is the name, or the pronoun if the last sentence was about the same person."""
        s = self.r.choice(forms)
        if who:
            again = self.last is who and self.r.random() < 0.5
            s = (
                s.replace("{P}", who.he if again else who.name)
                .replace("{his}", who.his)
                .replace("{him}", who.him)
                .replace("{he}", who.he)
            )
        self.last = who
        for p in self.people:
            if not p.known and p.name in s:
                p.known = True
                if f"named {p.name}" not in s:
                    s = s.replace(p.name, self.introduced(p), 1)
        self.text.append(cap(s))

    def introduced(self, p):
        """Who comes up for the first time is said to be new: a name that none had before follows, nothing else."""
        trait = self.r.choice(W.TRAITS) if self.r.random() < 0.3 else None
        if trait:
            self.trait(p, trait)
        return (article(trait) if trait else "a") + f" {p.kind} {self.r.choice(['named', 'called'])} {p.name}"

    def trait(self, p, trait):
        self.fact(trait, f"What kind of {p.kind} was {p.name}?")

    def speak(self, who, line, verb="said"):
        self.say(
            None,
            f'"{line}" {verb} {who.name}.',
            f'{who.name} {verb}, "{line.rstrip(",") + ("." if line[-1] == "," else "")}"',
        )

    def the(self, t, colour=0.5):
        if t.coloured or self.r.random() < colour:
            first, t.coloured = not t.coloured, True
            if first or self.r.random() < 0.4:
                return f"{t.colour} {t.name}"
        return t.name

    def fact(self, answer, *questions):
        self.facts.append((self.r.choice(questions), answer))

    # --- events

    def elsewhere(self):
        """A place where nobody is, each as likely as the next, so that none stands out at a low temperature."""
        return self.r.choice([x for x in sorted(W.PLACES) if all(q.place != x for q in self.people)])

    def be(self, p, place):
        p.place = place
        self.say(
            p,
            f"{{P}} was {at(place)}.",
            f"{p.name} stood {at(place)}.",
            f"{p.name} was waiting {at(place)}.",
            f"{p.name} sat {at(place)}.",
        )

    def go(self, p, place):
        """A person goes somewhere.

        If they come to or return to somebody, that is said; the other phrases name a place where nobody is.
        """
        there = [q for q in self.people if q is not p and q.place == place]
        back = place in p.been
        p.place = place
        if there:
            self.say(
                p,
                f"{{P}} came to the {place}.",
                f"Then {{P}} came to the {place}.",
                f"After that, {{P}} came to the {place}.",
                f"Soon {{P}} came to the {place}.",
            )
        elif back:
            self.say(
                p,
                f"{{P}} went back to the {place}.",
                f"Then {{P}} went back to the {place}.",
                f"After that, {{P}} went back to the {place}.",
                f"Soon {{P}} went back to the {place}.",
            )
        else:
            how = self.r.choice(["walked", "went", "ran", "hurried", "travelled", "moved"])
            self.say(
                p,
                f"{{P}} {how} to the {place}.",
                f"Then {{P}} {how} to the {place}.",
                f"{{P}} {how} to the {place} alone.",
                f"After that, {{P}} {how} to the {place}.",
                f"Soon {{P}} {how} to the {place}.",
            )

    def leave(self, p, to=None):
        """To somebody, back, or where nobody is."""
        back = [x for x in p.been if all(q.place != x for q in self.people)]
        x = self.r.random()
        self.go(
            p,
            (
                to.place
                if to and to.place and to.place != p.place and x < 0.5
                else self.r.choice(back)
                if back and x > 0.85
                else self.elsewhere()
            ),
        )

    def take(self, p, t):
        t.owner, t.place = p, None
        n = self.the(t)
        self.say(
            p,
            f"{{P}} picked up the {n}.",
            f"{{P}} took the {n}.",
            f"There {{P}} found the {n} and took it.",
            f"{{P}} grabbed the {n}.",
        )

    def drop(self, p, t):
        t.owner, t.place = None, p.place
        n, w = self.the(t, 0.2), at(p.place)
        self.say(
            p,
            f"{{P}} left the {n} {w}.",
            f"{{P}} put the {n} down {w}.",
            f"{{P}} dropped the {n} {w}.",
            f"{{P}} hid the {n} {w}.",
        )

    def give(self, p, q, t):
        t.owner, t.place, giver = q, None, p.name
        n = self.the(t, 0.2)
        self.say(
            p,
            f"{{P}} gave the {n} to {q.name}.",
            f"{{P}} gave {q.name} the {n}.",
            f"{{P}} handed the {n} to {q.name}.",
            f"Then {{P}} passed {q.name} the {n}.",
        )
        self.fact(giver, f"Who gave the {t.name} to {q.name}?", f"Who gave {q.name} the {t.name}?")

    def feel(self, p, feeling, *why):
        p.feeling = feeling
        self.say(
            p,
            *(
                why
                or (
                    f"{{P}} was {feeling}.",
                    f"{{P}} felt very {feeling}.",
                    f"This made {p.name} {feeling}.",
                    f"{{P}} felt {feeling}.",
                )
            ),
        )

    def sky(self, kind=None):
        self.weather = kind or self.r.choice(sorted(W.WEATHER))
        self.say(None, self.r.choice(W.WEATHER[self.weather]) + ".")

    def side(self, busy):
        """A distraction: someone outside the plot moves, or feels something."""
        p = self.people[2]
        if p in busy:
            return
        if p.place is None:
            self.be(p, self.elsewhere())
        elif self.r.random() < 0.7:
            self.leave(p)
        else:
            self.feel(p, self.r.choice(W.HAPPY + W.SAD))

    # --- questions

    def ask(self):
        """All facts of the final state, as (question, answer)."""
        for p in self.people:
            if p.place:
                self.fact(at(p.place), *where_is(p))
            if p.feeling:
                self.fact(p.feeling, f"How does {p.name} feel?", f"How is {p.name} feeling?")
        for t in self.things:
            if t.coloured:
                self.fact(t.colour, f"What colour is the {t.name}?", f"Which colour does the {t.name} have?")
            if t.owner:
                self.fact(t.owner.name, *who_has(t))
                other = self.r.choice(
                    [t.owner, self.r.choice([p for p in self.people if p is not t.owner and self.told(p)] or [t.owner])]
                )
                self.fact("yes" if other is t.owner else "no", f"Does {other.name} have the {t.name}?")
            elif t.place:
                self.fact(at(t.place), f"Where is the {t.name}?", f"Where is the {t.name} now?")
        if self.weather:
            self.fact(self.weather, "How was the weather?", "What was the weather like?")
        p = self.r.choice([p for p in self.people if p.place] or [None])
        if p:
            x = self.r.choice([p.place, self.r.choice(self.places)])
            self.fact("yes" if x == p.place else "no", f"Is {p.name} {at(x)}?")
        return self.facts

    def ask_again(self):
        """For drills: who is where and who has what once more, in every form, and the other way round."""
        there = [p for p in self.people if p.place]
        for p in there:
            self.facts += [(q, at(p.place)) for q in where_is(p)]
            self.fact(p.name, f"Who is {at(p.place)}?")
            x = self.r.choice([q.place for q in there] + [self.r.choice(self.places)])
            self.facts += [
                (f"Is {p.name} {at(p.place)}?", "yes"),
                (f"Is {p.name} {at(x)}?", "yes" if x == p.place else "no"),
            ]
        for t in self.things:
            if t.owner:
                self.facts += [(q, t.owner.name) for q in who_has(t)]
                self.facts += [(f"Does {p.name} have the {t.name}?", "yes" if p is t.owner else "no") for p in there]

    def told(self, p):
        return any(p.name in s for s in self.text)


# --- openings and endings


def opening(w, p, starts=("Once upon a time", "Once")):
    r = w.r
    home = w.elsewhere()
    trait = r.choice(W.TRAITS)
    start = r.choice([*starts, starts[0], r.choice(W.TIMES)])
    kind = r.random()
    if kind < 0.45:
        p.place = home
        near = "near" if r.random() < 0.5 else "by"
        w.say(
            None,
            f"{start}, there was {article(trait)} {p.kind} named {p.name} who lived {near} the {home}.",
            f"{start}, {article(trait)} {p.kind} named {p.name} lived {near} the {home}.",
        )
        p.place = None
        w.trait(p, trait)
        w.last = p
        if r.random() < 0.6:
            w.sky()
    elif kind < 0.8:
        w.sky()
    else:
        w.weather = r.choice(sorted(W.WEATHER))
        w.say(None, f"{start}, the weather was {w.weather}.", f"{r.choice(W.TIMES)} it was {w.weather}.")
    w.be(p, home)


ENDINGS = [
    "It was a good day.",
    "Then it was time to go to bed.",
    "What a day it was!",
    "They talked about it for a long time.",
    "The evening was calm and quiet.",
    "Nobody wanted the day to end.",
    "That night the stars were bright.",
    "And that was the end of the story.",
    "They laughed and sang a song together.",
    "Everyone went to sleep early.",
    "It was a day to remember.",
    "Later they had soup and bread.",
]


def end(w):
    if w.r.random() < 0.6:
        w.say(None, w.r.choice(ENDINGS))


# --- plots. Each is told with the world's first two people; the third appears beside.


def lost(w):
    h, f = w.people[:2]
    t, r = w.things[0], w.r
    opening(w, h)
    rel = r.choice(W.FAMILY)
    n = w.the(t, 1)
    w.say(
        h, f"{{P}} had lost {{his}} {n}.", f"{{P}} could not find {{his}} {n}.", f"{{P}} was looking for {{his}} {n}."
    )
    w.feel(h, r.choice(W.SAD))
    places = [x for x in w.places if x != h.place]
    for x in places[: r.randint(0, 2)]:
        h.place = x
        w.say(
            h,
            f"{{P}} looked {at(x)}, but the {t.name} was not there.",
            f"{{P}} went to the {x}, but found nothing.",
            f"{{P}} searched {at(x)}. It was not there.",
        )
        if r.random() < 0.4:
            w.side([h, f])
    f.place = h.place
    w.say(
        f,
        f"{f.name} came to help.",
        f"{f.name} heard about it and came to the {h.place}.",
        f"{h.name} met {f.name} there.",
    )
    spot = places[3]
    if r.random() < 0.5:
        w.fact(f.name, f"Who helped {h.name}?", f"Who met {h.name}?")
        t.place = spot
        w.speak(h, f"Have you seen my {t.name}?", "asked")
        w.speak(f, r.choice([f"Yes, it is {at(spot)},", f"I saw it {at(spot)},", f"Your {rel} left it {at(spot)},"]))
        h.place = f.place = spot
        w.say(
            None, f"So {h.name} and {f.name} went to the {spot}.", f"{h.name} and {f.name} ran to the {spot} together."
        )
        w.take(h, t)
    else:
        w.speak(h, f"Do you know where my {t.name} is?", "asked")
        t.owner = f
        w.speak(f, r.choice([f"Yes, I have it,", f"I found it {at(spot)},", f"Here it is,"]))
        w.give(f, h, t)
    if r.random() < 0.5:
        w.speak(h, r.choice(["Thank you,", "Thank you so much,", "You are a good friend,"]))
    if r.random() < 0.6:
        w.feel(h, r.choice(W.HAPPY))
    if r.random() < 0.5:
        w.leave(h)


def gift(w):
    g, b = w.people[:2]
    t, r = w.things[0], w.r
    opening(w, g)
    why = r.choice(["had a birthday", "was ill", "was leaving soon", "had a new house", "was getting married"])
    w.say(None, f"{b.name} {why}.")
    shop = r.choice(["market", "village", "harbour", "station", "museum"])
    g.place = shop
    n = w.the(t, 1)
    w.say(
        g,
        f"{{P}} went to the {shop} and bought {article(n)}.",
        f"So {{P}} bought {article(n)} at the {shop}.",
        f"{{P}} found {article(n)} at the {shop}.",
    )
    t.owner = g
    w.fact("the " + shop, f"Where did {g.name} get the {t.name}?", f"Where was the {t.name} from?")
    if r.random() < 0.6:
        w.side([g, b])
    w.be(b, w.elsewhere())
    w.go(g, b.place)
    w.speak(g, r.choice(["This is for you,", "I have a present for you,", "Look what I have,"]))
    w.give(g, b, t)
    w.feel(b, r.choice(W.HAPPY))
    if r.random() < 0.5:
        if r.random() < 0.5:
            w.leave(b)
        w.drop(b, t)
    if r.random() < 0.4:
        w.leave(g)


def share(w):
    h, f = w.people[:2]
    r = w.r
    many, one = r.choice(W.FOODS)
    opening(w, h)
    n = r.randint(3, 9)
    w.say(
        h,
        f"{{P}} had {W.NUMBERS[n]} {many}.",
        f"{{P}} had {W.NUMBERS[n]} {many} in a bag.",
        f"In a basket {{P}} had {W.NUMBERS[n]} {many}.",
    )
    if r.random() < 0.5:
        w.side([h, f])
    m = 0
    if r.random() < 0.5:
        f.place = h.place
        w.say(f, f"{f.name} came by.", f"{f.name} came to the {h.place}.")
        w.speak(
            f, r.choice([f"May I have some {many}?", f"Can you share the {many}?", "What do you have there?"]), "asked"
        )
        m = r.randint(1, min(3, n - 1))
        n -= m
        w.say(
            h,
            f"{{P}} gave {W.NUMBERS[m]} of them to {f.name}.",
            f"{{P}} gave {f.name} {W.NUMBERS[m]} {many if m > 1 else one}.",
        )
        w.fact(W.NUMBERS[m], f"How many {many} did {f.name} get?", f"How many {many} does {f.name} have?")
        w.fact(h.name, f"Who gave {many} to {f.name}?")
    else:
        m = r.randint(1, 3)
        n += m
        w.say(
            h,
            f"{{P}} found {W.NUMBERS[m]} more.",
            f"Then {{P}} got {W.NUMBERS[m]} more.",
            f"{{P}} bought {W.NUMBERS[m]} more.",
        )
        w.fact(W.NUMBERS[m], f"How many more {many} did {h.name} get?")
    w.say(h, f"Now {{P}} had {W.NUMBERS[n]} {many if n > 1 else one}.") if r.random() < 0.4 else None
    w.fact(W.NUMBERS[n], f"How many {many} does {h.name} have now?", f"How many {many} does {h.name} have in the end?")
    w.fact(many, f"What did {h.name} have?")
    if r.random() < 0.6:
        w.feel(r.choice([h, f] if f.place else [h]), r.choice(W.HAPPY))
    if r.random() < 0.7:
        w.leave(h)


def happen(w, cast):
    """One of the cast gives, drops, takes or goes."""
    r = w.r
    p = r.choice(cast)
    held = [t for t in w.things if t.owner is p]
    near = [q for q in cast if q is not p and q.place == p.place]
    free = [t for t in w.things if t.owner is None and t.place in (None, p.place)]
    x = r.random()
    if held and near and x < 0.5:
        w.give(p, near[0], held[0])
    elif held and x < 0.3:
        w.drop(p, held[0])
    elif not held and free and x < 0.7:
        w.take(p, free[0])
    elif x < 0.8:
        q = w.people[1] if p is w.people[0] else w.people[0]
        w.leave(p, q)
    else:
        w.side(cast)


def wander(w):
    r = w.r
    opening(w, w.people[0])
    w.be(w.people[1], w.elsewhere())
    for _ in range(r.randint(4, 7)):
        happen(w, w.people[:2])


def drill(w):
    """Less a story than an exercise: some people are somewhere, and few things happen."""
    r = w.r
    cast = w.people[: r.randint(2, 3)]
    if r.random() < 0.5:
        opening(w, cast[0], W.TIMES)
    for p in cast:
        if p.place is None and r.random() < 0.3:
            trait = r.choice(W.TRAITS)
            w.say(p, f"There was {article(trait)} {p.kind} named {p.name}.")
            w.trait(p, trait)
        if p.place is None:
            w.be(p, w.elsewhere())
    for _ in range(r.randint(0, r.randint(0, 6))):
        if r.random() < 0.4:
            p = r.choice(cast)
            w.leave(p)
        else:
            happen(w, cast)


def work(w):
    p, q = w.people[:2]
    r = w.r
    job, place, many, did = r.choice(W.JOBS)
    one = dict(W.FOODS)[many]
    start = r.choice(["Once upon a time", r.choice(W.TIMES)])
    w.say(
        None,
        f"{start}, there was {article(job)} named {p.name}.",
        f"{p.name} was {article(job)}.",
        f"{start}, {p.name} worked as {article(job)}.",
    )
    w.last = p
    w.fact(job, f"What was the job of {p.name}?", f"What is {p.name}?")
    p.place = place
    w.say(p, f"{{P}} worked {at(place)} every day.", f"Every day {{P}} went to the {place}.")
    if r.random() < 0.5:
        w.sky()
    n = r.randint(3, 9)
    w.say(p, f"That day {{P}} {did} {W.NUMBERS[n]} {many}.", f"{{P}} {did} {W.NUMBERS[n]} {many} in the morning.")
    q.place = place
    rel = r.choice(W.FAMILY)
    w.say(q, f"{q.name} came to the {place}.", f"Then {q.name} came with {{his}} {rel}.", f"{q.name} came to buy some.")
    m = r.randint(1, min(3, n - 1))
    w.speak(q, f"I would like {W.NUMBERS[m]} {many if m > 1 else one}, please,")
    w.say(
        p,
        f"{{P}} sold {W.NUMBERS[m]} {many if m > 1 else one} to {q.name}.",
        f"{p.name} gave {q.name} {W.NUMBERS[m]} {many if m > 1 else one}.",
    )
    w.fact(W.NUMBERS[n - m], f"How many {many} were left?", f"How many {many} does {p.name} have left?")
    w.fact(W.NUMBERS[n], f"How many {many} were there at first?")
    w.fact(q.name, f"Who bought the {many}?", f"Who came to buy {many}?")
    if r.random() < 0.6:
        w.feel(p, r.choice(W.HAPPY + ["tired"]))
    if r.random() < 0.6:
        w.leave(q)
    if r.random() < 0.5:
        w.side([p, q])


def pet(w):
    h, f = w.people[:2]
    r = w.r
    kind, fur, name = r.choice(W.PETS), r.choice(W.FUR), r.choice(W.PET_NAMES)
    opening(w, h)
    w.say(
        h,
        f"{{P}} had a {fur} {kind} named {name}.",
        f"{{P}} had a {kind}. It was {fur} and its name was {name}.",
        f"{h.name}'s {kind} was {fur}. Its name was {name}.",
    )
    w.fact(name, f"What was the name of the {kind}?", f"What was the {kind} called?")
    w.fact(fur, f"What colour was the {kind}?", f"What colour was {name}?")
    w.fact(kind, f"What kind of animal was {name}?")
    w.say(None, f"One day {name} ran away.", f"But {name} was gone.", f"Suddenly {name} was nowhere to be seen.")
    w.feel(h, r.choice(["sad", "worried", "scared", "lonely"]))
    finder = r.choice([h, f])
    for _ in range(r.randint(0, 1)):
        w.side([h, f])
    w.be(f, w.elsewhere())
    spot = w.elsewhere()
    noise = r.choice(["a strange noise", "a soft sound", "something", "a little cry"])
    finder.place = spot
    w.say(
        finder,
        f"{finder.name} heard {noise} {at(spot)}. It was {name}!",
        f"{finder.name} went to the {spot} and found {name} there.",
        f"{finder.name} found {name} {at(spot)}.",
    )
    w.fact(finder.name, f"Who found {name}?", f"Who found the {kind}?")
    w.fact(at(spot), f"Where was {name} found?", f"Where was the {kind}?")
    if finder is f:
        w.go(h, spot)
    w.speak(h, r.choice([f"There you are, {name},", f"Never run away again, {name},", "I missed you,"]))
    w.feel(h, r.choice(W.HAPPY))


def trip(w):
    h, f = w.people[:2]
    t, r = w.things[0], w.r
    opening(w, h)
    ride = r.choice(W.RIDES)
    x = [x for x in w.places if x != h.place]
    w.speak(h, r.choice([f"Let us go to the {x[0]},", f"I want to see the {x[0]},", f"Come with me to the {x[0]},"]))
    w.say(f, f"{f.name} liked the idea.", f'"Yes, let us go," said {f.name}.', f"{f.name} was glad to come.")
    w.fact(f.name, f"Who went with {h.name}?", f"Who came with {h.name}?")
    n = w.the(t, 0.7)
    carrier = r.choice([h, f])
    t.owner = carrier
    w.say(
        carrier,
        f"{carrier.name} took {article(n)} along.",
        f"{carrier.name} carried {article(n)}.",
        f"{carrier.name} brought {article(n)}.",
    )
    h.place = f.place = x[0]
    w.say(
        None,
        f"They went to the {x[0]} by {ride}.",
        f"{h.name} and {f.name} took the {ride} to the {x[0]}.",
        f"A {ride} brought them to the {x[0]}.",
    )
    w.fact(ride, "What did they ride?", f"What took them to the {x[0]}?")
    if r.random() < 0.5:
        w.side([h, f])
    y = r.random()
    if y < 0.35:
        w.drop(carrier, t)
    elif y < 0.7:
        w.give(carrier, f if carrier is h else h, t)
    w.feel(r.choice([h, f]), r.choice(W.HAPPY + W.SAD))
    if r.random() < 0.5:
        w.leave(f)
    if r.random() < 0.4:
        w.leave(h)


def trade(w):
    a, b = w.people[:2]
    s, t = w.things[:2]
    r = w.r
    opening(w, a)
    for p, o in ((a, s), (b, t)):
        o.owner = p
        n = w.the(o, 0.8)
        w.say(p, f"{{P}} had {article(n)}.", f"{{P}} was holding {article(n)}.", f"{{P}} owned {article(n)}.")
    if r.random() < 0.5:
        w.side([a, b])
    b.place = a.place
    w.say(b, f"{b.name} came to the {a.place}.", f"{a.name} met {b.name} {at(a.place)}.")
    w.speak(
        a,
        r.choice(
            [
                f"I like your {t.name},",
                f"Your {t.name} is very nice,",
                f"Will you give me your {t.name} for my {s.name}?",
            ]
        ),
    )
    if r.random() < 0.65:
        w.speak(b, r.choice(["Let us trade,", "We can swap,", "Yes, take it,"]))
        w.say(
            None,
            f"So {a.name} and {b.name} swapped.",
            f"They traded the {s.name} for the {t.name}.",
            f"{a.name} got the {t.name} and {b.name} got the {s.name}.",
        )
        s.owner, t.owner = b, a
    else:
        w.speak(b, r.choice(["No, I want to keep it,", "I am sorry, it is mine,", "Not today,"]))
        w.feel(a, r.choice(W.SAD))
    if r.random() < 0.6:
        w.leave(r.choice([a, b]))


def contest(w):
    r = w.r
    t = w.things[0]
    game, did = r.choice(W.GAMES)
    ps = w.people[: r.randint(2, 3)]
    spot = w.places[0]
    w.say(None, f"{r.choice(W.TIMES)} there was a {game} {at(spot)}.", f"There was a big {game} {at(spot)}.")
    w.fact(at(spot), f"Where was the {game}?")
    if r.random() < 0.5:
        w.sky()
    w.say(
        None,
        " ".join(
            f"{p.name} {did} {how}."
            for p, how in zip(
                ps, r.sample(["well", "badly", "slowly", "with a smile", "very well", "with great care"], len(ps))
            )
        ),
    )
    win = r.choice(ps)
    for p in ps:
        p.place = spot
    w.say(
        win, f"In the end {win.name} won the {game}.", f"{win.name} was the winner.", f"But it was {win.name} who won."
    )
    w.fact(win.name, f"Who won the {game}?", "Who was the winner?")
    n = w.the(t, 1)
    t.owner = win
    w.say(win, f"The prize was {article(n)}.", f"{{P}} got {article(n)} as a prize.")
    w.fact(f"{article(t.name)}", "What was the prize?")
    w.feel(win, r.choice(W.HAPPY))
    loser = next(p for p in ps if p is not win)
    if r.random() < 0.6:
        w.feel(loser, r.choice(["sad", "angry", "tired"]))
    if r.random() < 0.6:
        w.speak(loser, r.choice(["Well done,", "You were very good,", "Next time I will win,"]))
    y = r.random()
    if y < 0.3:
        w.give(win, loser, t)
    elif y < 0.6:
        w.leave(win)
        w.drop(win, t)
    if r.random() < 0.5:
        w.leave(loser)


PLOTS = [lost, gift, share, wander, work, pet, trip, trade, contest]


def document(rng, held, drills=0):
    """(story, [(question, answer)])"""
    w = World(rng, held)
    plot = drill if drills and rng.random() < drills else rng.choice(PLOTS)
    plot(w)
    end(w)
    facts = w.ask()
    if plot is drill:
        w.ask_again()
    facts = [(q, a) for q, a in facts if all(a == b for p, b in facts if p == q)]
    rng.shuffle(facts)
    seen, out = set(), []
    for q, a in facts:
        if q not in seen:
            seen.add(q)
            out.append((q, a))
    return " ".join(w.text), out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--seed", type=int, required=True)
    a.add_argument("--docs", type=int, required=True)
    a.add_argument("--held", action="store_true", help="the held-out split")
    a.add_argument("--out", required=True)
    a.add_argument(
        "--questions",
        help="JSON lines, one question of each document; these documents' questions are left out of --out",
    )
    a.add_argument(
        "--drills", type=float, default=0, help="share of documents that are exercises in who is where and has what"
    )
    a.add_argument("--only", default="", help="questions that this regular expression matches, no others")
    a.add_argument("--most", type=int, default=7, help="questions after a story, at most")
    a = a.parse_args()
    rng = random.Random(a.seed * 2 + a.held)
    with open(a.out, "w") as f:
        questions = []
        for _ in range(a.docs):
            story, facts = document(rng, a.held, a.drills)
            n = 0 if rng.random() < 0.08 else rng.randint(3, a.most)
            if a.questions:
                q, answer = facts[0]
                questions.append({"prompt": f"{story}\nQ: {q}\nA:", "answer": answer})
                facts = facts[1:]
            facts = [x for x in facts if re.match(a.only, x[0])]
            f.write(story + "\n" + "".join(f"Q: {q}\nA: {x}\n" for q, x in facts[:n]) + "\n")
    if a.questions:
        with open(a.questions, "w") as f:
            f.writelines(json.dumps(q) + "\n" for q in questions)


if __name__ == "__main__":
    main()
