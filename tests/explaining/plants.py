"""Files made from recorded rollouts by one change to the whole file, and files that are bad through and through.

Nothing here imports the product.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILES = {"babyai": "babyai", "halfcheetah": "mujoco", "metaworld": "metaworld", "clevr": "clevr", "libero": "libero"}
LEVELS = ("real", "rephrase", "easy", "hard")
STEPS = ("observations", "next_observations", "actions", "rewards", "masks", "terminals")
ROLLOUTS = {"babyai": 60, "halfcheetah": 30, "metaworld": 24, "clevr": 40, "libero": 12}
LABELLED = {**ROLLOUTS, "metaworld": 40, "libero": 18}
Content = dict[str, Any]
Options = dict[str, Any]


def recorded(data: Path, env: str, level: str, rng: np.random.Generator, most: int = 0) -> Content:
    """Some whole real rollouts of a level, those of one step left out."""
    content = _load(data / "golden" / f"{FILES[env]}_{level}.npy")
    length = content["masks"].reshape(len(content["masks"]), -1).sum(axis=1)
    long = np.flatnonzero(length > 2) if length.max() > 2 else np.arange(len(length))
    chosen = np.sort(rng.permutation(long)[: most or ROLLOUTS[env]])
    kept: Content = {name: content[name][chosen].copy() for name in STEPS}
    kept["instructions"] = [content["instructions"][i] for i in chosen]
    kept["task"] = [content["task_str"][i] for i in chosen]  # of this test alone
    if "goals" in content:
        kept["goals"] = content["goals"][chosen].copy()
    if rng.random() < 0.4:  # the older files have none
        del kept["next_observations"]
    return kept


_KNOWN: dict[Path, Content] = {}


def _load(path: Path) -> Content:
    if path not in _KNOWN:
        _KNOWN[path] = np.load(path, allow_pickle=True).item()
    return _KNOWN[path]


def _valid(content: Content) -> np.ndarray:
    return content["masks"].reshape(content["masks"].shape[:2]) > 0


def _rows(content: Content, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change every row that counts; padding stays 0."""
    for name in ("observations", "next_observations"):
        if name in content:
            valid = _valid(content)
            new = np.zeros(content[name].shape, np.float32)
            new[valid] = change(content[name][valid].astype(np.float64))
            content[name] = new


# -- files that are wrong in one way -----------------------------------------------------------------------------------


def shift(content: Content, env: str, rng: np.random.Generator) -> Options:
    by = rng.choice([-1, 1])
    for i, valid in enumerate(_valid(content)):
        n = int(valid.sum())
        at = np.clip(np.arange(n) + by, 0, n - 1)
        content["actions"][i, :n] = content["actions"][i, at]
    return {}


def clipping(content: Content, env: str, rng: np.random.Generator) -> Options:
    """A quarter to a half of the transitions lose what lies beyond a bound, of the actions or of the velocities."""
    share = rng.uniform(0.25, 0.5)
    if env == "halfcheetah" and rng.random() < 0.5:
        largest = np.abs(content["observations"][_valid(content)][:, 9:]).max(axis=1)
        bound = np.quantile(largest, 1 - share)
        _rows(content, lambda rows: np.concatenate([rows[:, :9], np.clip(rows[:, 9:], -bound, bound)], axis=1))
    else:
        column = int(rng.integers(content["actions"].shape[2] - (env == "libero")))
        values = content["actions"][:, :, column]
        bound = 0.8 * np.quantile(np.abs(values[_valid(content)]), 1 - share)
        content["actions"][:, :, column] = np.clip(values, -bound, bound)
    return {}


def quaternion(content: Content, env: str, rng: np.random.Generator) -> Options:
    if env == "libero":
        firsts = dict.fromkeys((10, 19, 26, 33, 40), "last")
    else:
        last = (0, 3, 7, 11)  # entities whose quaternions end in the scalar
        firsts = {10 + 7 * k: "last" if k in last else "first" for k in range(12) if k != 4}
    side = "last" if env == "libero" else rng.choice(["last", "first", "both"])
    wrong = [(at, scalar) for at, scalar in firsts.items() if side in (scalar, "both")]

    def change(rows: np.ndarray) -> np.ndarray:
        new = rows.copy()
        for at, scalar in wrong:
            new[:, at : at + 4] = np.roll(rows[:, at : at + 4], 1 if scalar == "last" else -1, axis=1)
        return new

    _rows(content, change)
    return {}


def standardised(content: Content, env: str, rng: np.random.Generator) -> Options:
    """By the statistics of all real rollouts of the level, given as reference but where whole numbers tell them."""
    path = content["data"] / "golden" / f"{FILES[env]}_{content['level']}.npy"
    whole = _load(path)
    rows = whole["observations"][_valid(whole)].astype(np.float64)
    std = rows.std(axis=0)
    _rows(content, lambda values: (values - rows.mean(axis=0)) / np.where(std > 1e-6, std, 1))
    return {} if env == "babyai" else {"reference": path}


def padding(content: Content, env: str, rng: np.random.Generator) -> Options:
    content["masks"] = np.ones_like(content["masks"])
    for name in ("observations", "next_observations", "actions", "rewards"):  # a row of padding at least
        if name in content:
            value = content[name]
            content[name] = np.concatenate([value, np.zeros_like(value[:, :2])], axis=1)
    for name in ("masks", "terminals"):
        content[name] = np.concatenate([content[name], content[name][:, -2:]], axis=1)
    return {}


def labels(content: Content, env: str, rng: np.random.Generator) -> Options:
    """The instructions of one task are written over those of another, or all are dealt out anew."""
    tasks = sorted(set(content["task"]))
    n = len(content["task"])
    source = np.arange(n)
    if rng.random() < 0.5:
        source = rng.permutation(n)
    else:
        for other in tasks[1:]:
            of_first = [i for i in range(n) if content["task"][i] == tasks[0]]
            mine = [i for i in range(n) if content["task"][i] == other]
            source[mine] = rng.choice(of_first, len(mine))
    content["instructions"] = [content["instructions"][i] for i in source]
    if "goals" in content:
        content["goals"] = content["goals"][source]
    return {}


def level(content: Content, env: str, rng: np.random.Generator) -> Options:
    other = {"real": ("easy", "hard"), "rephrase": ("easy", "hard")}
    return {"level": str(rng.choice(other.get(content["level"], [x for x in LEVELS if x != content["level"]])))}


def family(content: Content, env: str, rng: np.random.Generator) -> Options:
    return {"family": "mujoco-2" if env == "clevr" else str(rng.choice(["mujoco-3.0", "mujoco-3.3"]))}


PLANTS: dict[str, tuple[Callable[..., Options], tuple[str, ...]]] = {
    "shift": (shift, tuple(FILES)),
    "clipping": (clipping, ("halfcheetah", "libero")),
    "quaternion": (quaternion, ("metaworld", "libero")),
    "standardised": (standardised, tuple(FILES)),
    "padding": (padding, tuple(FILES)),
    "labels": (labels, tuple(FILES)),
    "level": (level, tuple(FILES)),
    "family": (family, ("metaworld", "clevr")),
}


def planted(data: Path, kind: str, env: str, rng: np.random.Generator) -> tuple[Content, Options]:
    """A file that is right but for one thing, and the options it is scored with."""
    plant, _ = PLANTS[kind]
    known = LEVELS
    if env == "clevr":  # rollouts of one step show no shift, and a task of six balls cannot be guessed
        known = LEVELS[:2] if kind == "labels" else ("real", "rephrase", "hard")
    at = str(rng.choice(known))
    content = recorded(data, env, at, rng, LABELLED[env] if kind == "labels" else 0)
    content["level"], content["data"] = at, data
    return content, plant(content, env, rng)


def walker(data: Path, rng: np.random.Generator) -> Content:
    """A piece of a Walker2d recording, whose rows and actions have the shapes of HalfCheetah's."""
    with (data / "real" / "cs285_expert_Walker2d-v4.pkl").open("rb") as stream:
        paths = pickle.load(stream)  # of known origin
    path, begin, n = paths[rng.integers(len(paths))], int(rng.integers(0, 400)), int(rng.integers(300, 600))
    pieces = {
        "observations": path["observation"],
        "actions": path["action"],
        "next_observations": path["next_observation"],
    }
    content = {name: np.asarray(value, np.float32)[None, begin : begin + n] for name, value in pieces.items()}
    return {**content, "rewards": np.zeros((1, n, 1), np.float32), "masks": np.ones((1, n, 1), np.float32)}


# -- files that are honestly bad ---------------------------------------------------------------------------------------


def noise(content: Content, env: str, rng: np.random.Generator) -> None:
    """Every row is off by chance; whole numbers in some of their places."""
    size = rng.uniform(0.1, 1.0)
    std = content["observations"][_valid(content)].std(axis=0)

    def change(rows: np.ndarray) -> np.ndarray:
        if env == "babyai":
            hit = rng.random(rows.shape) < 0.05 * size
            return np.where(hit, rng.integers(0, 7, rows.shape), rows)
        return rows + size * std * rng.normal(size=rows.shape)

    _rows(content, change)


def drift(content: Content, env: str, rng: np.random.Generator) -> None:
    """Errors pile up along each rollout."""
    std = content["observations"][_valid(content)].std(axis=0)
    size = rng.uniform(0.05, 0.3)
    steps = content["observations"].shape[1]
    walk = size * std * rng.normal(size=(len(content["observations"]), steps + 1, len(std))).cumsum(axis=1)
    for name, first in (("observations", 0), ("next_observations", 1)):
        if name in content:
            new = content[name] + walk[:, first : first + steps]
            new = np.rint(new) if env == "babyai" else new
            content[name] = np.where(_valid(content)[:, :, None], new, 0).astype(np.float32)


def frozen(content: Content, env: str, rng: np.random.Generator) -> None:
    """From some step on nothing moves."""
    for i, valid in enumerate(_valid(content)):
        n = int(valid.sum())
        at = int(rng.integers(0, max(n // 2, 1)))
        content["observations"][i, at:n] = content["observations"][i, at]
        if "next_observations" in content:
            content["next_observations"][i, at:n] = content["observations"][i, at]


def wrong_objects(content: Content, env: str, rng: np.random.Generator) -> None:
    """Half of the columns come from another rollout, at every step anew."""
    columns = rng.permutation(content["observations"].shape[2])[: content["observations"].shape[2] // 2]
    valid = _valid(content)
    for name in ("observations", "next_observations"):
        if name in content:
            rows = content[name][valid]
            rows[:, columns] = rows[rng.permutation(len(rows))][:, columns]
            content[name][valid] = rows


def random_actions(content: Content, env: str, rng: np.random.Generator) -> None:
    """The rows are real and the actions those of other steps and rollouts."""
    valid = _valid(content)
    content["actions"][valid] = content["actions"][valid][rng.permutation(int(valid.sum()))]


def damped(content: Content, env: str, rng: np.random.Generator) -> None:
    """A model that moves too little: every change of a rollout from its first row is scaled down."""
    factor = rng.uniform(0.3, 0.8)
    first = content["observations"][:, :1].astype(np.float64)
    for name in ("observations", "next_observations"):
        if name in content:
            new = first + factor * (content[name] - first)
            new = np.rint(new) if env == "babyai" else new
            content[name] = np.where(_valid(content)[:, :, None], new, 0).astype(np.float32)


def learnt(content: Content, env: str, rng: np.random.Generator) -> None:
    """A linear model of the change, fitted to the file and rolled out from its first rows."""
    valid = _valid(content)
    obs, action = content["observations"].astype(np.float64), content["actions"].astype(np.float64)
    action = action.reshape(*valid.shape, -1) if env not in ("babyai", "clevr") else np.eye(40)[content["actions"]]
    pair = valid[:, 1:] & valid[:, :-1]
    inputs = np.concatenate([obs, action, np.ones((*valid.shape, 1))], axis=2)
    change = (obs[:, 1:] - obs[:, :-1])[pair]
    known = inputs[:, :-1][pair]
    weight = np.linalg.solve(known.T @ known + 1e-3 * len(known) * np.eye(known.shape[1]), known.T @ change)
    spread = (change - known @ weight).std(axis=0)
    low, high = obs[valid].min(axis=0), obs[valid].max(axis=0)
    rows = [obs[:, 0]]
    for step in range(valid.shape[1]):
        seen = np.concatenate([rows[-1], action[:, step], np.ones((len(obs), 1))], axis=1)
        new = np.clip(rows[-1] + seen @ weight + 0.3 * spread * rng.normal(size=rows[-1].shape), low, high)
        rows.append(np.rint(new) if env == "babyai" else new)
    path = np.stack(rows, axis=1)
    for name, begin in (("observations", 0), ("next_observations", 1)):
        if name in content:
            part = path[:, begin : begin + valid.shape[1]]
            content[name] = np.where(valid[:, :, None], part, 0).astype(np.float32)


def skipped(content: Content, env: str, rng: np.random.Generator) -> None:
    """Every other step is missing."""
    for name in STEPS:
        if name in content:
            content[name] = content[name][:, ::2].copy()


BAD: dict[str, Callable[..., None]] = {
    change.__name__: change for change in (noise, drift, frozen, wrong_objects, random_actions, damped, learnt, skipped)
}
SHARED = {
    "babyai": ("imagined/imag_babyai_easy", "imagined/imag_babyai_rephrase", "mutated/babyai_mutated"),
    "halfcheetah": (
        "imagined/imag_mujoco_easy",
        "imagined/imag_mujoco_rephrase",
        "imagined/imag_mujoco_rephrase_round2",
        "mutated/mujoco_mutated",
    ),
    "metaworld": ("mutated/metaworld_mutated",),
    "clevr": ("mutated/clevr_mutated",),
    "libero": ("mutated/libero_mutated",),
}


def bad(data: Path, kind: str, env: str, rng: np.random.Generator) -> Content:
    """A file that no change to the whole of it puts right; kind "shared": a piece of one that is passed on."""
    if kind == "shared":
        content = _load(data / f"{rng.choice(SHARED[env])}.npy")
        chosen = rng.permutation(len(content["masks"]))[: 2 * ROLLOUTS[env]]
        kept = {name: content[name][chosen].copy() for name in STEPS if name in content}
        return {**kept, "instructions": [content["instructions"][i] for i in chosen]}
    at = str(rng.choice(("real", "rephrase", "hard") if env == "clevr" else LEVELS))
    content = recorded(data, env, at, rng)
    BAD[kind](content, env, rng)
    return content


def write(content: Content, path: Path) -> Path:
    kept = {name: value for name, value in content.items() if name not in ("task", "level", "data")}
    np.save(path, np.array(kept, object), allow_pickle=True)
    return path
