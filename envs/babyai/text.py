"""Which task an instruction names.

The benchmark's own sentences come first, with case, spaces and punctuation folded. Failing that, a sentence may differ
in politeness, articles and adverbs, in single slips of the keyboard, in the order "next to the Y put the X", or be one
of a few more wordings; it is placed only if all readings agree on one task with one set of objects. Words that could
turn the meaning (not, close, or, then ...) are never skipped, so a sentence with one too many is left unplaced.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from qualcheck.envs.babyai.layout import COLOURS, TYPES
from qualcheck.types import Placement

NO_INSTRUCTION = Placement("", "", code="no_instruction")
PARAMETRISED = ("goto", "open", "pickup", "putnext")  # tasks that name colours and types
AMBIGUOUS = Placement("", "", code="ambiguous_instruction")

MAX_CHARACTERS = 2_000  # twenty times the longest sentence of the benchmark
MAX_WORDS = 40
MAX_READINGS = 16
SPELLINGS = {"gray": "grey", "goto": "go to", "pickup": "pick up", "centre": "center", "towards": "toward"}
SLOT = "#"  # stands for a colour in a folded sentence; no word can contain it
NAMED_TYPES = {"type": TYPES, "type1": TYPES[:3], "type2": TYPES}  # a door can be a landmark but not be moved

Words = tuple[str, ...]
Goal = tuple[str, Words]  # task and params
Form = tuple[str, tuple[str | int, ...]]  # task and params, a number standing for the n-th colour of the sentence


def words(text: str) -> Words:
    """The words of a text: lower case, no punctuation, one spelling."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    found = re.findall(r"[^\W_]+", folded)
    return tuple(" ".join(SPELLINGS.get(word, word) for word in found).split())


def _split_colours(sentence: Words) -> tuple[Words, Words]:
    shape = tuple(SLOT if word in COLOURS else word for word in sentence)
    return shape, tuple(word for word in sentence if word in COLOURS)


def _reduce(sentence: Words) -> Words:
    book = _book()
    for opening in book["openings"]:
        if sentence[: len(opening)] == opening:
            sentence = sentence[len(opening) :]
    return tuple(word for word in sentence if word not in book["skipped"])


def _kinds(task: str) -> dict[str, Words]:
    return {**NAMED_TYPES, "type": TYPES[:3]} if task == "pickup" else NAMED_TYPES


def _forms(task: str, template: str) -> Iterator[tuple[Words, Form]]:
    """Each way to fill the types of a template, colours still open."""
    names = re.findall(r"{(\w+)}", template)
    kinds = [name for name in names if name.startswith("type")]
    colours = [name for name in names if name.startswith("color")]
    for choice in itertools.product(*(_kinds(task)[kind] for kind in kinds)):
        given = dict(zip(kinds, choice, strict=True))
        slots = dict.fromkeys(colours, COLOURS[0])
        shape, _ = _split_colours(words(template.format(**given, **slots)))
        params: list[str | int] = []
        for number in ("", "1", "2"):
            if f"color{number}" in colours:
                params += [colours.index(f"color{number}"), given.get(f"type{number}", "door")]
        yield shape, (task, tuple(params))


def _fronted(template: str) -> str | None:
    """The template with its landmark first: "next to the Y put the X"."""
    parts = re.fullmatch(r"(.*{type1})(.*{type2})(.*)", template)
    return None if parts is None else f"{parts[2]} {parts[1]} {parts[3]}"


@cache
def _book() -> dict[str, Any]:
    text = files("qualcheck.envs.babyai").joinpath("instructions.json").read_text(encoding="utf-8")
    book: dict[str, Any] = json.loads(text)
    return {**book, "skipped": frozenset(book["skipped"]), "openings": [words(text) for text in book["openings"]]}


@cache
def _tables() -> tuple[dict[Words, set[Form]], dict[Words, set[Form]], dict[int, Words]]:
    """Exact shapes, reduced shapes, and known words by length."""
    book = _book()
    exact: dict[Words, set[Form]] = {}
    loose: dict[Words, set[Form]] = {}
    vocabulary = {*COLOURS, *TYPES, *book["skipped"], *itertools.chain(*book["openings"])}
    for task, kept in book["tasks"].items():
        own = [kept["canonical"], *kept["recorded"], *kept["rephrased"]]
        more = [*own, *book["other"][task]]
        for template in own:
            for shape, form in _forms(task, template):
                exact.setdefault(shape, set()).add(form)
        for template in [*more, *filter(None, map(_fronted, more))]:
            for shape, form in _forms(task, template):
                loose.setdefault(_reduce(shape), set()).add(form)
                vocabulary.update(shape)
    lengths: dict[int, list[str]] = {}
    for word in sorted(vocabulary - {SLOT}):
        lengths.setdefault(len(word), []).append(word)
    return exact, loose, {length: tuple(known) for length, known in lengths.items()}


def _one_edit(word: str, meant: str) -> bool:
    """Whether one letter is missing, added, exchanged with its neighbour, or another one."""
    if len(word) == len(meant):
        wrong = [place for place, pair in enumerate(zip(word, meant, strict=True)) if pair[0] != pair[1]]
        if len(wrong) == 1:
            return True
        first, last = wrong[0], wrong[-1]
        return len(wrong) == 2 and last == first + 1 and word[first] == meant[last] and word[last] == meant[first]
    short, long = sorted((word, meant), key=len)
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


def _likely(word: str, meant: str) -> bool:
    """Whether an edit is a slip rather than another English word: "rip" is not "grip" and "bell" is not "ball"."""
    replaced = len(word) == len(meant) and sorted(word) != sorted(meant)
    return word[0] == meant[0] and len(meant) >= (6 if replaced else 3)


@lru_cache(maxsize=1 << 14)
def _spellings(word: str) -> Words:
    """The known words a word may stand for: itself, or every one that is a likely slip away.

    Where one of them is a colour or type, so is every other one in reach: "gren" may be green or grey.
    """
    known = _tables()[2]
    if word in known.get(len(word), ()):
        return (word,)
    if len(word) < 3 or not word.isascii():
        return ()
    close = itertools.chain.from_iterable(known.get(len(word) + more, ()) for more in (-1, 0, 1))
    near = [meant for meant in close if _one_edit(word, meant)]
    likely = [meant for meant in near if _likely(word, meant)]
    named = [meant for meant in near if meant in COLOURS or meant in TYPES]
    return tuple(dict.fromkeys(likely + named)) if set(likely) & set(named) else tuple(likely)


def _readings(sentence: Words) -> list[Words]:
    choices = [_spellings(word) for word in sentence]
    count = 1
    for choice in choices:
        count *= len(choice)
    return [] if count > MAX_READINGS else list(itertools.product(*choices))


def _fill(forms: Iterable[Form], colours: Words) -> set[Goal]:
    return {
        (task, tuple(colours[part] if isinstance(part, int) else part for part in params)) for task, params in forms
    }


def _decide(goals: set[Goal]) -> Placement:
    if len(goals) != 1:
        return AMBIGUOUS
    ((task, params),) = goals
    return Placement(task, task, params)


@lru_cache(maxsize=1 << 16)
def place(instruction: str | None) -> Placement:
    """The task of an instruction with its colours and types in the order of their roles, or the code why there is none.

    `params` is (colour, type) for goto, open and pickup, (colour, type, colour, type) for putnext with the object to
    move first, and () elsewhere.
    """
    if instruction is None or not instruction.strip():
        return NO_INSTRUCTION
    if len(instruction.strip()) > MAX_CHARACTERS:
        return AMBIGUOUS
    sentence = words(instruction)
    if not sentence:
        return NO_INSTRUCTION
    if len(sentence) > MAX_WORDS:
        return AMBIGUOUS
    exact, loose, _ = _tables()
    shape, colours = _split_colours(sentence)
    if shape in exact:
        return _decide(_fill(exact[shape], colours))
    found: set[Goal] = set()
    for reading in _readings(sentence):
        shape, colours = _split_colours(_reduce(reading))
        found |= _fill(loose.get(shape, ()), colours)
    return _decide(found)


@cache
def sentences(task: str, rephrased: bool) -> tuple[str, ...]:
    """The benchmark's sentences for a task with slots for colours and types: its recorded or its rephrased ones."""
    return tuple(_book()["tasks"][task]["rephrased" if rephrased else "recorded"])


def say(task: str, params: tuple[str, ...], level: str, rng: np.random.Generator) -> str:
    """A sentence of the level for the task, its slots filled."""
    template = str(rng.choice(sentences(task, level == "rephrase")))
    colours, kinds = params[::2], params[1::2]
    if len(colours) == 1:
        return template.format(color=colours[0], type=kinds[0])
    numbered = {f"color{n}": colour for n, colour in enumerate(colours, 1)}
    return template.format(**numbered, **{f"type{n}": kind for n, kind in enumerate(kinds, 1)})


def every_placement() -> tuple[Placement, ...]:
    """Every task with every object that it can name."""
    things: list[tuple[str, ...]] = [(colour, kind) for colour in COLOURS for kind in TYPES]
    items = [thing for thing in things if "door" not in thing]
    named: dict[str, list[tuple[str, ...]]] = {
        "goto": things,
        "open": [(colour, "door") for colour in COLOURS],
        "pickup": items,
        "putnext": [(*one, *other) for one in items for other in items if one != other],
    }
    return tuple(Placement(task, task, params) for task, choices in named.items() for params in choices)
