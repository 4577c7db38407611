"""Which task an instruction names.

The benchmark's own sentences come first, with case, spaces and punctuation folded. Failing that, a sentence is read as
a chain of what it says (seize, transfer, an object, to, the basket, then ...), in its own order, and is placed only if
that chain is one of the known forms and exactly one task remains. So the soup that goes to the cheese is not the cheese
that goes to the soup, and words that could turn the meaning (after, before, not, or ...) are not known at all.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache, lru_cache
from importlib.resources import files
from itertools import permutations
from typing import Any

from qualcheck.envs.libero.columns import OBJECTS
from qualcheck.envs.libero.goals import TASK_IDS
from qualcheck.errors import unknown_name
from qualcheck.types import AnyArray, Placement

NO_INSTRUCTION = Placement("", "", code="no_instruction")
AMBIGUOUS = Placement("", "", code="ambiguous_instruction")

MAX_CHARACTERS = 2_000
LONG_WORD = 6  # in a word meant to be this long or longer, one slip of the keyboard is forgiven
MARK = "#"  # begins what a part of a sentence says; no word can contain it
OPTIONAL = ("and", "then", "fire")  # links between two doings, and the reason of one

Words = tuple[str, ...]


def words(text: str) -> Words:
    """The words of a text in lower case, without punctuation; an underscore is a space."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    return tuple(re.findall(r"[^\W_]+", folded))


@cache
def book() -> dict[str, Any]:
    """The benchmark's sentences by kind of task, and the words and forms of the reading."""
    text = files("qualcheck.envs.libero").joinpath("instructions.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    return kept


def _filled(kind: str) -> list[tuple[str, dict[str, str]]]:
    """Each task of a kind with the objects of its slots."""
    name = book()["names"][kind]
    slots = [slot for slot in ("a", "b") if f"{{{slot}}}" in name]
    given = [dict(zip(slots, choice, strict=True)) for choice in permutations(OBJECTS, len(slots))]
    return [(name.format(**objects), objects) for objects in given]


@cache
def sentences() -> dict[str, str]:
    """Every sentence of the benchmark -> its task."""
    return {
        text.format(**objects): task
        for kind, texts in book()["texts"].items()
        for task, objects in _filled(kind)
        for text in texts
    }


@cache
def _exact() -> dict[Words, str]:
    return {words(text): task for text, task in sentences().items()}


@cache
def _forms() -> dict[Words, set[str]]:
    """What a sentence says, without its links -> the tasks it names."""
    known: dict[Words, set[str]] = {}
    for kind, forms in book()["forms"].items():
        for task, objects in _filled(kind):
            for form in forms:
                said = " ".join(
                    objects.get(part.lower(), part) if part in ("A", "B") else part for part in form.split()
                )
                for spelt in _with_three(said.split()):
                    known.setdefault(tuple(part for part in spelt if part not in OPTIONAL), set()).add(task)
    return known


def _with_three(said: list[str]) -> list[list[str]]:
    """A form in every order of three objects, where it names all three."""
    if "3" not in said:
        return [said]
    at = said.index("3")
    return [[*said[:at], *order, *said[at + 1 :]] for order in permutations(OBJECTS)]


@cache
def _phrases() -> list[tuple[str, str]]:
    """Phrases of several words -> what they say, longest first; those of the tool say nothing."""
    kept = book()
    found = {" ".join(words(name)): task for task, names in kept["objects"].items() for name in names}
    found |= {phrase: says for says, spelt in kept["phrases"].items() for phrase in spelt}
    return sorted(found.items(), key=lambda item: -len(item[0].split()))


@cache
def _known() -> dict[str, str]:
    """Word -> what it says, "" where it says nothing."""
    said = {word: says for says, spelt in book()["words"].items() for word in spelt}
    return said | dict.fromkeys(book()["skipped"], "")


@cache
def _vocabulary() -> frozenset[str]:
    """Every word of the book."""
    kept = book()
    texts = [phrase for phrase, _ in _phrases()] + kept["tools"] + kept["tool_words"] + list(_known())
    return frozenset(word for text in texts for word in text.split())


@lru_cache(maxsize=1 << 12)
def _spelt(word: str) -> str:
    """The word of the book that a word stands for: itself, or the only one a slip of the keyboard away."""
    if word in _vocabulary() or len(word) < LONG_WORD - 1:
        return word
    near = [meant for meant in _vocabulary() if len(meant) >= LONG_WORD and _one_slip(word, meant)]
    return near[0] if len(near) == 1 else word


def _one_slip(word: str, meant: str) -> bool:
    """Whether one letter is missing, added or another one, or two neighbours are exchanged; the first one is right."""
    if word[0] != meant[0] or abs(len(word) - len(meant)) > 1:
        return False
    if len(word) == len(meant):
        wrong = [place for place, pair in enumerate(zip(word, meant, strict=True)) if pair[0] != pair[1]]
        swapped = len(wrong) == 2 and wrong[1] == wrong[0] + 1 and sorted(word) == sorted(meant)
        return len(wrong) == 1 or swapped
    short, long = sorted((word, meant), key=len)
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


@cache
def _tool() -> re.Pattern[str]:
    """A way to say that the gripper does it: "employ the robotic gripper to"."""
    opening, word = "|".join(book()["tools"]), "|".join(book()["tool_words"])
    return re.compile(rf" (?:{opening})((?: (?:{word}))+)(?: to)?(?= )")


def _reading(sentence: Words) -> Words | None:
    """What the sentence says, in order, without its links; None where a word is not known."""
    joined = _tool().sub(" ", f" {' '.join(_spelt(word) for word in sentence)} ")
    for phrase, says in _phrases():
        joined = joined.replace(f" {phrase} ", f" {MARK}{says} ")
    said: list[str] = []
    for word in joined.split():
        meaning = word[1:] if word.startswith(MARK) else _known().get(word)
        if meaning is None:
            return None
        if meaning:
            said.append(meaning)
    return _linked(said)


def _linked(said: list[str]) -> Words | None:
    """The chain without links, each "it" as the object named last; None where a link stands where none can.

    A link may open a doing that is not the first, or stand between the names of one list of three.
    """
    found: list[str] = []
    for at, says in enumerate(said):
        if says == "fire" and at == 0:
            continue
        if says in OPTIONAL:
            after = said[at + 1] if at + 1 < len(said) else ""
            opens = at > 0 and (after in ("seize", "transfer") or (says, after) == ("and", "then"))
            lists = (
                says == "and" and at > 1 and after in OBJECTS and said[at - 1] in OBJECTS and said[at - 2] in OBJECTS
            )
            if not (opens or lists):
                return None
        elif says == "it":
            named = [part for part in found if part in (*OBJECTS, "something")]
            found.append("it" if named[-1:] == ["something"] else named[-1] if named else "it")
        else:
            found.append(says)
    return tuple(found)


@lru_cache(maxsize=1 << 14)
def _place(instruction: str) -> Placement:
    sentence = words(instruction)
    if not sentence:
        return NO_INSTRUCTION
    task = _exact().get(sentence)
    if task is None and len(instruction) <= MAX_CHARACTERS:
        said = _reading(sentence)
        found = _forms().get(said, set()) if said else set()
        task = next(iter(found)) if len(found) == 1 else None
    return AMBIGUOUS if task is None else Placement(task, task)


def place(instruction: str | None, goal: AnyArray | None = None) -> Placement:  # noqa: ARG001  # no file has goal arrays
    """The task of an instruction, or the code why there is none."""
    return NO_INSTRUCTION if instruction is None else _place(instruction)


def placement_of_task(name: str) -> Placement:
    """The placement of a task given by its id or by a sentence that names it.

    Raises:
        UnknownName: neither.
    """
    if name in TASK_IDS:
        return Placement(name, name)
    found = place(name) if " " in name else AMBIGUOUS  # a misspelt id is not a sentence
    if not found.task:
        raise unknown_name("LIBERO task", name, list(TASK_IDS))
    return found
