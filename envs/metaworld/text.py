"""Which task an instruction names.

The benchmark's own sentences come first, with case, spaces and punctuation folded. Failing that, a sentence may differ
from one of them in politeness, articles, adverbs of manner, how the tool is named, and single slips of the keyboard.
Failing that, it is read as a chain of what it says (push, object, target ...), in its own order, and is placed only if
that chain is one of the known forms. Each way, exactly one task has to remain: "fasten the door" could be its lock or
its leaf. Words that could turn the meaning (not, from, after, or ...) are never skipped.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from qualcheck.envs.metaworld.goals import TASK_IDS
from qualcheck.envs.metaworld.layout import base_task
from qualcheck.errors import unknown_name
from qualcheck.types import AnyArray, Placement

NO_INSTRUCTION = Placement("", "", code="no_instruction")
AMBIGUOUS = Placement("", "", code="ambiguous_instruction")

MAX_CHARACTERS = 2_000
LONG_WORD = 6  # in a word meant to be this long or longer, one slip of the keyboard is forgiven
MARK = "#"  # begins what a part of a sentence says; no word can contain it

Words = tuple[str, ...]


def words(text: str) -> Words:
    """The words of a text in lower case, without punctuation; an underscore is a space."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    return tuple(re.findall(r"[^\W_]+", folded))


@cache
def book() -> dict[str, Any]:
    """The benchmark's sentences by task and kind, and the words and forms of the reading."""
    text = files("qualcheck.envs.metaworld").joinpath("instructions.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    return kept


@cache
def sentences() -> dict[str, str]:
    """Every sentence of the benchmark -> its task."""
    return {text: task for task, kinds in book()["texts"].items() for texts in kinds.values() for text in texts}


@cache
def _exact() -> dict[Words, str]:
    return {words(text): task for text, task in sentences().items()}


@cache
def _skipped() -> frozenset[str]:
    return frozenset(book()["skipped"])


@cache
def _tool() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Ways to say that the gripper does it: "employ the robotic gripper to" before it, "with the gripper" after it."""
    kept = book()
    opening = "|".join(sorted(kept["tools"], key=len, reverse=True))
    name = "|".join(sorted(kept["tool_names"], key=len, reverse=True))
    before = re.compile(rf" (?:{opening}) (?:(?:the|a|your) )?(?:{name})(?: to| for)?(?= )")
    after = re.compile(rf" (?:with|using|by using|by means of|by) (?:(?:the|a|your) )?(?:{name})(?= )")
    return before, after


def _without_tool(sentence: Words) -> str:
    joined = f" {' '.join(_spelt(word) for word in sentence)} "
    for pattern in _tool():
        joined = pattern.sub(" ", joined)
    return joined


def _reduced(sentence: Words) -> Words:
    """The sentence without its tool, politeness, articles and adverbs."""
    return tuple(word for word in _without_tool(sentence).split() if word not in _skipped())


@cache
def _loose() -> dict[Words, set[str]]:
    known: dict[Words, set[str]] = {}
    for sentence, task in _exact().items():
        known.setdefault(_reduced(sentence), set()).add(task)
    return known


@cache
def _phrases() -> list[tuple[str, str]]:
    """Phrases -> what they say, longest first; one that says two things stands there twice."""
    found = [(" ".join(words(text)), says) for says, spelt in book()["phrases"].items() for text in spelt]
    return sorted(found, key=lambda item: -len(item[0].split()))


@cache
def _forms() -> dict[Words, set[str]]:
    known: dict[Words, set[str]] = {}
    for task, forms in book()["forms"].items():
        for form in forms:
            known.setdefault(tuple(form.split()), set()).add(task)
    return known


@cache
def _vocabulary() -> frozenset[str]:
    """Every word of the book and of the benchmark's sentences."""
    kept = book()
    texts = [phrase for phrase, _ in _phrases()] + kept["tools"] + kept["tool_names"] + kept["skipped"] + kept["links"]
    return frozenset(word for text in texts for word in text.split()) | {w for sentence in _exact() for w in sentence}


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


def _readings(sentence: Words) -> set[Words]:
    """What the sentence may say, in order; empty where a word is not known.

    A word such as "lock" is a thing and a doing: every reading counts.
    """
    joined = _without_tool(sentence)
    meanings: dict[str, set[str]] = {}
    for phrase, says in _phrases():
        meanings.setdefault(phrase, set()).add(says)
        joined = joined.replace(f" {phrase} ", f" {MARK}{phrase.replace(' ', '_')} ")
        joined = joined.replace(f" {phrase} ", f" {MARK}{phrase.replace(' ', '_')} ")  # two in a row share a space
    found: set[Words] = {()}
    for word in joined.split():
        if word.startswith(MARK):
            either = meanings[word[1:].replace("_", " ")]
            found = {(*chain, meaning) for chain in found for meaning in either}
        elif word not in _skipped() and word not in book()["links"]:
            return set()
    return found


@lru_cache(maxsize=1 << 14)
def _place(instruction: str) -> Placement:
    sentence = words(instruction)
    if not sentence:
        return NO_INSTRUCTION
    if sentence in _exact():
        task = _exact()[sentence]
        return Placement(task, task)
    if len(instruction) > MAX_CHARACTERS:
        return AMBIGUOUS
    found = _loose().get(_reduced(sentence), set())
    if not found:
        found = {task for said in _readings(sentence) for task in _forms().get(said, set())}
    if len(found) != 1:
        return AMBIGUOUS
    (task,) = found
    return Placement(task, task)


def place(instruction: str | None, goal: AnyArray | None = None) -> Placement:  # noqa: ARG001  # a position names no task
    """The task of an instruction, or the code why there is none.

    Args:
        instruction: the sentence; None where the file has none.
        goal: the goal array of the file, a position, which is in the rows as well.
    """
    return NO_INSTRUCTION if instruction is None else _place(instruction)


def placement_of_task(name: str) -> Placement:
    """The placement of a task given by its id, by a name of the benchmark's environments, or by a sentence.

    Raises:
        UnknownName: none of them.
    """
    task = base_task(name)
    if task:
        return Placement(task, task)
    found = place(name) if " " in name else AMBIGUOUS  # a misspelt id is not a sentence
    if not found.task:
        raise unknown_name("Meta-World task", name, list(TASK_IDS))
    return found
