"""Which task an instruction names, by its meaning and by the benchmark's code.

The benchmark's own sentences come first, with case, spaces and punctuation folded. Failing that, a sentence is read
word by word for what is done (jump, move), which ways in which order, how fast, and whether on the spot; it is placed
only if every word is known and exactly one task remains. Words that could turn the order or the meaning (after, before,
not, or ...) are not known, so such a sentence is left unplaced.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from qualcheck.envs.halfcheetah.goals import TASK_IDS, TASKS
from qualcheck.errors import unknown_name
from qualcheck.types import Placement

NO_INSTRUCTION = Placement("", "", code="no_instruction")
AMBIGUOUS = Placement("", "", code="ambiguous_instruction")

MAX_CHARACTERS = 2_000
LONG_WORD = 6  # from this length on, one slip of the keyboard is forgiven

Words = tuple[str, ...]


def words(text: str) -> Words:
    """The words of a text in lower case, without punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    return tuple(re.findall(r"[^\W_]+", folded))


@cache
def book() -> dict[str, Any]:
    """The benchmark's sentences by task, and the words of the reading."""
    text = files("qualcheck.envs.halfcheetah").joinpath("instructions.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    return kept


@cache
def _exact() -> dict[Words, Placement]:
    served = {words(text): task for task, texts in book()["served_swapped"].items() for text in texts}
    return {
        words(text): Placement(task, served.get(words(text), task))
        for task, texts in book()["texts"].items()
        for text in texts
    }


@cache
def _meanings() -> dict[str, Words]:
    """Word -> what it says: "jump", "move", "forward", "backward", "fast", "then"; () where it says nothing."""
    known: dict[str, Words] = {**dict.fromkeys(book()["skipped"], ()), "then": ("then",)}
    for meaning in ("verbs", "directions"):
        for says, spelt in book()[meaning].items():
            known |= dict.fromkeys(spelt, tuple(says.split()))
    return known | dict.fromkeys(book()["fast"], ("fast",))


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


def _says(word: str) -> Words | None:
    """What a word says, None where it is not known or could be two words."""
    known = _meanings()
    if word in known:
        return known[word]
    near = {known[meant] for meant in known if min(len(word), len(meant)) >= LONG_WORD and _one_slip(word, meant)}
    return near.pop() if len(near) == 1 else None


def _read(sentence: Words) -> list[str] | None:
    """What the sentence says, in order; None where a word is not known."""
    joined = f" {' '.join(sentence)} "
    for phrase in book()["in_place"]:
        joined = joined.replace(f" {phrase} ", " #place ")
    for phrase in book()["slow"]:
        joined = joined.replace(f" {phrase} ", " #slow ")
    said: list[str] = []
    for word in joined.split():
        meaning = (word[1:],) if word.startswith("#") else _says(word)
        if meaning is None:
            return None
        said.extend(meaning)
    return said


def _ways(said: list[str]) -> list[str] | None:
    """The directions in order, each after a verb or "then" of its own; None where two contradict each other.

    So "retreat backward" names one direction, "retreat forward" and "move back and forth" name none.
    """
    ways: list[str] = []
    fresh = False
    for word in said:
        if word in ("jump", "move", "then"):
            fresh = True
        elif word in ("forward", "backward"):
            if fresh or not ways:
                ways.append(word)
            elif ways[-1] != word:
                return None
            fresh = False
    return ways


def _tasks(said: list[str]) -> set[str]:
    """Every task that agrees with all that is said."""
    verbs, ways = {"jump", "move"} & set(said), _ways(said)
    found = set()
    for level in ("real", "easy", "hard"):  # only their own sentences name the rephrased tasks, whose goals are these
        for task in TASKS[level]:
            verb, *rest = task.split("-")
            own_ways = [part for part in rest if part in ("forward", "backward")]
            agrees = verbs <= {verb} and ways in ([], own_ways) and ("place" in said) <= ("place" in rest)
            agrees &= ("fast" in said) == ("fast" in rest) or not ways
            agrees &= ("slow" in said) <= (len(own_ways) == 2)
            if agrees:
                found.add(task)
    return found


@lru_cache(maxsize=1 << 14)
def place(instruction: str | None) -> Placement:
    """The task of an instruction, or the code why there is none."""
    if instruction is None or not instruction.strip():
        return NO_INSTRUCTION
    sentence = words(instruction)
    if not sentence:
        return NO_INSTRUCTION
    if sentence in _exact():
        return _exact()[sentence]
    said = _read(sentence) if len(instruction) <= MAX_CHARACTERS else None
    if not said:
        return AMBIGUOUS
    found = _tasks(said)
    if not found:
        return AMBIGUOUS
    if len(found) > 1 or not {"jump", "move"} & set(said):
        return AMBIGUOUS
    task = found.pop()
    return Placement(task, task)


def placement_of_task(name: str) -> Placement:
    """The placement of a task given by its id.

    Raises:
        UnknownName: no such task.
    """
    if name not in TASK_IDS:
        raise unknown_name("HalfCheetah task", name, list(TASK_IDS))
    return Placement(name, name)
