"""Which task a goal array or an instruction names.

A goal array comes first. It has 6 numbers: for each ball 1 (to be moved), 2 (reference) or 0, then a way; without a
reference it is an easy goal, whose way may also be 4 (keep still). Without any ball it is a hard goal: the sixth number
is its kind, and two or three such sixes follow where it combines them. Unused numbers are 0, negative or NaN.

The benchmark's own sentences come next, with case, spaces and punctuation folded. Failing that, a sentence is read word
by word. It is placed only if every word is known and balls and ways stand in one of a few orders that leave one
reading: "the red ball left of the blue ball", "to the left of the blue ball put the red ball", two or three such
clauses joined by "and", "push the red ball to the left". Words that could turn the meaning (not, switch, from, it,
which ...) are not known, and a verb of motion beside a word of place ("push the ball located left of ...") leaves it
open what is meant: such sentences are left unplaced.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from itertools import groupby

import numpy as np

from qualcheck.envs.clevr.goals import NONE, TASK_IDS, WAYS, roles
from qualcheck.envs.clevr.layout import BALLS
from qualcheck.errors import UnknownName, unknown_name
from qualcheck.types import AnyArray, Placement

NO_INSTRUCTION = Placement("", "", code="no_instruction")
AMBIGUOUS = Placement("", "", code="ambiguous_instruction")

MAX_CHARACTERS = 2_000
LONG_WORD = 6  # from this length on, one slip of the keyboard is forgiven

Words = tuple[str, ...]

# The benchmark's own sentences; "#" stands for the colour of a ball
SIDES = {
    "behind": ("behind", "to the behind of", "in behind of"),
    "left": ("to the left of", "left", "in left of"),
    "front": ("in front of", "front", "to the front of"),
    "right": ("to the right of", "right", "in right of"),
}
REQUESTS = (
    *(f"{start}{verb} the" for start in ("", "can you ", "can you help me ") for verb in ("push", "move", "keep")),
    "is the",
    "is there any",
)
REPORTS = ("moves", "is being pushed", "is pushed", "was pushed", "is being moved", "is moved", "was moved")
PUSH_WAYS = {
    "behind": ("behind", "backward"),
    "left": ("left", "to the left"),
    "front": ("front", "to the front"),
    "right": ("right", "to the right"),
}
WHOLE = {"gather all the balls together": "gather", "arrange the balls in a line": "order"}

# What a word says in any other sentence, a letter each: ways (c is one only before "of"), verbs that move (m), arrange
# (a) or keep (k), words of place (s), and those of the tasks of all balls. "behind" is read by what follows it.
SPOKEN = {
    "f": "front forward forwards ahead",
    "b": "backward backwards behind",
    "c": "back rear",
    "l": "left leftward leftwards",
    "r": "right rightward rightwards",
    "p": "preceding leading",
    "o": "of",
    "m": "push pushes pushed pushing move moves moved moving nudge slide maneuver manoeuvre propel shift drive launch "
    "catapult thrust send fling hurl cast roll shove bring hasten accelerate",
    "a": "put place arrange position get",
    "k": "keep hold",
    "s": "positioned situated located placed standing sitting lying resting being",
    "t": "still",
    "n": "balls spheres orbs",
    "g": "together",
    "G": "gather",
    "i": "line row",
    "": "the a an any there all please kindly can could would will you me i my help lets let us want like id am "
    "ball sphere orb one colored coloured to toward towards in on at side hand is are was be "
    "gently slowly quickly gradually expeditiously swiftly urgently promptly carefully softly rapidly movement motion "
    "sight seeing see observe observing notice witnessing arrangement pleases brings fills gives feel find joy "
    "happiness delighted satisfaction sense happy contentment pleased",
}
PHRASES = {  # whose words would say too much alone
    "so that it is": "",
    "until it is": "",
    "it pleases me": "",
    "it brings me": "",
    "fills me with": "",
    "pleased by": "",
    "with a gentle touch": "",
    "with rapidity": "",
    "at a leisurely pace": "",
    "line up": "arrange line",
}
ARTICLES = ("the", "a", "any")
SIDE_LETTERS = {"B": "behind", "L": "left", "F": "front", "R": "right"}
WAY_LETTERS = {"b": "behind", "l": "left", "f": "front", "r": "right"}
MOVES, PLACES = re.compile("[mak]"), re.compile("s")
BESIDE = re.compile(r"(\d)([BLFR])(\d)")
BESIDE_FRONTED = re.compile(r"([BLFR])(\d)(\d)")
PUSH = re.compile(r"m(\d)([blfr])")
KEEP_STILL = re.compile(r"k(\d)t")
GATHER = re.compile(r"Gg?n|Gng|[ma](ng|gn)")
ORDER = re.compile(r"a(ni|in)")


def words(text: str) -> Words:
    """The words of a text in lower case; of its punctuation, what separates clauses is kept as commas."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    found = ["," if word in ";." else word for word in re.findall(r"[^\W_]+|[,;.]", folded)]
    return tuple(found[: len(found) - (found[-1:] == [","])])


def _known(task: str, *params: str) -> Placement:
    return Placement(task, task, params)


def _split_colours(sentence: Words) -> tuple[Words, Words]:
    shape = tuple("#" if word in BALLS else word for word in sentence if word != ",")
    return shape, tuple(word for word in sentence if word in BALLS)


@cache
def _own_sentences() -> dict[Words, str]:
    """Shape of a sentence -> id of its task."""
    shapes = dict(WHOLE)
    for way, sides in SIDES.items():
        for side in sides:
            shapes |= {f"{request} # ball {side} the # ball": f"tau_{way}" for request in REQUESTS}
            shapes |= {f"the # ball {report} {side} the # ball": f"tau_{way}" for report in REPORTS}
        shapes |= {f"push the # ball {spelt}": f"push_{way}" for spelt in PUSH_WAYS[way]}
    return {tuple(shape.split()): task for shape, task in shapes.items()}


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
def _letters() -> dict[str, str]:
    spoken = {word: letter for letter, spelt in SPOKEN.items() for word in spelt.split()}
    return spoken | {ball: str(number) for number, ball in enumerate(BALLS)} | {",": ","}


@lru_cache(maxsize=1 << 14)
def _letter(word: str) -> str | None:
    """What a word says; None where it is not known or could be several words of different meanings."""
    known = _letters()
    if word in known:
        return known[word]
    near = {known[meant] for meant in known if min(len(word), len(meant)) >= LONG_WORD and _one_slip(word, meant)}
    return near.pop() if len(near) == 1 else None


def _read(clause: Words) -> str | None:
    """What a clause says, in order, with a capital letter for each side of a ball; None where a word is not known."""
    text = f" {' '.join(clause)} "
    for phrase, plain in PHRASES.items():
        text = text.replace(f" {phrase} ", f" {plain} ")
    plain_words = text.split()
    said = ""
    for at, word in enumerate(plain_words):
        letter = _letter(word)
        if letter is None:
            return None
        if letter == "b" and not word.startswith("back"):
            after = [_letter(later) for later in plain_words[at + 1 :] if later not in ARTICLES][:1]
            letter = "B" if after and after[0] and (after[0].isdigit() or after[0] == "o") else "b"
        said += letter
    said = re.sub("f,?p", "F", re.sub("Bo", "B", said))
    said = re.sub("([clfr])o", lambda found: found[1].upper().replace("C", "B"), said)
    return said.replace("o", "").replace(",", "")


def _beside(clause: Words) -> tuple[Words, bool] | None:
    """(way, moved ball, reference ball) of a clause and whether it has a verb of motion; None where it says no such."""
    shape, colours = _split_colours(clause)
    said = _read(clause)
    task = _own_sentences().get(shape, "")
    if task.startswith("tau_"):
        way, moved, reference = task.removeprefix("tau_"), *colours
    else:
        if said is None or (MOVES.search(said) and PLACES.search(said)):
            return None
        bare = re.sub("[maks]", "", said)
        if found := BESIDE.fullmatch(bare):
            first, side, second = found.groups()
        elif found := BESIDE_FRONTED.fullmatch(bare):
            side, second, first = found.groups()
        else:
            return None
        way, moved, reference = SIDE_LETTERS[side], BALLS[int(first)], BALLS[int(second)]
    return None if moved == reference else ((way, moved, reference), bool(said and MOVES.search(said)))


def _combined(sentence: Words) -> Placement:
    """The task of clauses that are separated by "and" or commas; a statement does not come before a command."""
    separated = groupby(sentence, lambda word: word in ("and", ","))
    found = [_beside(tuple(clause)) for between, clause in separated if not between]
    clauses = [clause for clause in found if clause is not None]
    if len(clauses) != len(found) or len(found) not in (2, 3):
        return AMBIGUOUS
    if any(moves for _, moves in clauses) and not clauses[0][1]:
        return AMBIGUOUS
    return _known(f"tau_{len(clauses)}", *(word for part, _ in clauses for word in part))


@lru_cache(maxsize=1 << 16)
def _of_text(instruction: str | None) -> Placement:
    if instruction is None or not instruction.strip():
        return NO_INSTRUCTION
    if len(instruction) > MAX_CHARACTERS:
        return AMBIGUOUS
    sentence = words(instruction)
    if not sentence:
        return NO_INSTRUCTION
    shape, colours = _split_colours(sentence)
    task = _own_sentences().get(shape, "")
    if task and not task.startswith("tau_"):
        return _known(task, *colours)
    if one := _beside(sentence):
        (way, *balls), _ = one
        return _known(f"tau_{way}", *balls)
    said = _read(sentence) or ""
    if push := PUSH.fullmatch(said):
        return _known(f"push_{WAY_LETTERS[push[2]]}", BALLS[int(push[1])])
    if still := KEEP_STILL.fullmatch(said):
        return _known("push_still", BALLS[int(still[1])])
    if GATHER.fullmatch(said):
        return _known("gather")
    if ORDER.fullmatch(said):
        return _known("order")
    return _combined(sentence)


def _numbers(goal: AnyArray | None) -> tuple[int, ...] | None:
    """The whole numbers of a goal array, of its first row where it has several; -1 where unused; None where it is none.

    () where there is nothing in it.
    """
    if goal is None:
        return ()
    try:
        values = np.asarray(goal).astype(np.float64)
        values = values.reshape(-1, values.shape[-1])[:1].ravel() if values.ndim > 1 else values.ravel()
    except (TypeError, ValueError):
        return None
    values = np.where(np.isnan(values) | (values < 0), -1, values)
    if (values == -1).all():
        return ()
    if not (np.isfinite(values) & (values == np.floor(values))).all():
        return None
    return tuple(int(value) for value in np.minimum(values, 99))


def _part(numbers: tuple[int, ...]) -> Words | None:
    """(way, moved, reference) of six numbers, None where they do not name one of each."""
    balls, way = numbers[:5], numbers[5:6]
    if len(numbers) < 6 or sorted(n for n in balls if n > 0) != [1, 2] or way[0] not in range(len(WAYS)):
        return None
    return WAYS[way[0]], BALLS[balls.index(1)], BALLS[balls.index(2)]


@lru_cache(maxsize=1 << 16)
def _of_goal(numbers: tuple[int, ...]) -> Placement | None:
    """The task of a goal array, None where it is no goal of this environment."""
    if len(numbers) < 6:
        return None
    balls, kind, rest = numbers[:5], numbers[5], numbers[6:]
    marks = [n for n in balls if n > 0]
    if marks and any(n > 0 for n in rest):
        return None
    if part := _part(numbers[:6]):
        return _known(f"tau_{part[0]}", *part[1:])
    if marks == [1] and 0 <= kind <= len(WAYS):
        return _known(f"push_{(*WAYS, 'still')[kind]}", BALLS[balls.index(1)])
    if marks or kind not in range(4):
        return None
    if kind > 1:
        return _known("order" if kind == 2 else "gather")
    parts = [_part(rest[6 * at : 6 * at + 6]) for at in range(kind + 2)]
    return None if None in parts else _known(f"tau_{kind + 2}", *(word for part in parts if part for word in part))


def place(instruction: str | None, goal: AnyArray | None = None) -> Placement:
    """The task of a goal array, else of an instruction, its balls in the order of their roles; or why there is none.

    Args:
        instruction: a sentence.
        goal: (6,), (18,) or (24,) numbers, or several equal rows of them, of which the first is read. Where it is no
            goal of this environment, the instruction decides.
    """
    numbers = _numbers(goal)
    found = _of_goal(numbers) if numbers else None
    if found is not None:
        return found
    by_text = _of_text(instruction)
    return AMBIGUOUS if by_text is NO_INSTRUCTION and numbers != () else by_text


def placement_of_task(name: str) -> Placement:
    """The placement that an id with its balls ("tau_left:red,blue") or a sentence names.

    Raises:
        UnknownName: neither, or an id without the balls that it needs.
    """
    task, _, listed = name.partition(":")
    if task in TASK_IDS:
        placement = _known(task, *(word.strip() for word in listed.split(",") if word.strip()))
        if roles([placement]).kind[0] == NONE:
            raise UnknownName(f"{name!r} does not name the balls of {task}; type for example {example(task)!r}.")
        return placement
    found = _of_text(name)
    if found.code:
        raise unknown_name("CLEVR-Robot task", name, list(TASK_IDS))
    return found


def example(task: str) -> str:
    """A task id with balls, as `placement_of_task` takes it."""
    clauses = ("left,red,blue", "behind,green,purple", "right,cyan,green")
    if task in ("tau_2", "tau_3"):
        return f"{task}:{','.join(clauses[: int(task[-1])])}"
    return f"{task}:red,blue" if task.startswith("tau_") else f"{task}:red" if task.startswith("push_") else task


def every_placement() -> tuple[Placement, ...]:
    """Every task of one or two balls with all that it can name."""
    pairs = [(one, other) for one in BALLS for other in BALLS if one != other]
    beside = [_known(f"tau_{side}", *pair) for side in WAY_LETTERS.values() for pair in pairs]
    return (*beside, *(_known(f"push_{way}", ball) for way in (*WAY_LETTERS.values(), "still") for ball in BALLS))
