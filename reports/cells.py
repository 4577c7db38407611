"""The content of a report: one cell for every env x level x generator (x task), ready for any format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.manifest import SCHEMA, dump
from qualcheck.reports import rates
from qualcheck.reports.horizon import horizon
from qualcheck.reports.metrics import Counts, control_counts, core, further, per_rollout, pick
from qualcheck.reports.pool import Pool, Text, pool
from qualcheck.reports.sweep import KINDS, steady, sweep
from qualcheck.reports.worst import worst
from qualcheck.stats import LEVEL
from qualcheck.table import Run
from qualcheck.types import AnyArray, BoolArray, IntArray

LEVELS = ("real", "rephrase", "easy", "hard")  # the order of the benchmark; any other text follows
TOP_RULES = 10
NOT_APPLICABLE = "not applicable: the goal judges the action itself"
SAME_REASON = {"consistency": "goal_consistency", "consistency_replayed": "goal_consistency_replayed"}

Cell = dict[str, Any]
Report = dict[str, Any]


def build_report(runs: Sequence[Run], by_task: bool = False, mixed: bool = False) -> Report:
    """Everything a report says, as `report --format json` prints it (interfaces.md, schema 1).

    A missing value is None with its reason under `<name>_reason`; no NaN occurs.

    Args:
        by_task: one cell a task instead of one for all tasks of a level.
        mixed: keep runs of different definitions, grade, predicates or calibration in cells of their own.

    Raises:
        UsageError: runs that must not be pooled, see `pool`.
        DataError: a run that cannot be read.
    """
    data = pool(runs, mixed)
    levels = [(run.manifest["results"].get("sample") or {}).get("level", LEVEL) for run in runs]
    with rates.at_level(max(levels)):
        return _build(runs, data, by_task)


def _build(runs: Sequence[Run], data: Pool, by_task: bool) -> Report:
    keys, member = _group(data, by_task)
    results = [run.manifest["results"] for run in runs]
    counts = per_rollout(data)
    tables = _tables(data, member, len(keys))
    real = _real_horizons(runs, by_task)
    cells = []
    for number, (law, env, level, generator, task) in enumerate(keys):
        rows = np.flatnonzero(member == number)
        of_law = [result for result, other in zip(results, data.laws, strict=True) if other == data.laws[law]]
        mix = _mix(data.text["task"], rows)
        cell: Cell = {
            "env": env,
            "level": level,
            "generator": generator,
            "task": task,
            "grade": data.laws[law].grade,
            "predicates": data.laws[law].predicates,
            "definitions": data.laws[law].definitions,
            "calibration": data.laws[law].calibration,
        }
        mine = pick(counts, rows)
        cell |= core(mine) | further(mine, exact=data.laws[law].grade == "exact")
        cell["predicates_differ"]["texts"] = _texts_differ(data, rows)
        cell["trivial"] = rates.of_verdicts(_trivial(data, mine, rows))
        cell["horizon"] = horizon(data, rows)
        cell["threshold_sweep"] = sweep({name: data.number[name][rows] for name in KINDS.values()})
        cell["skill_median"] = _skill(data, member == number)
        cell |= {name: table[number] for name, table in tables.items()}
        _explain(cell)
        _add_floors(cell, [result["floors"] for result in of_law if result.get("floors")], mix)
        _add_control(cell, [result["control"] for result in of_law if result.get("control")], set(mix))
        cell["horizon"] |= _beside(real, env, task)
        cells.append(cell)
    return {
        "schema": SCHEMA,
        "definitions": data.laws[0].definitions,
        "cells": cells,
        "findings": list(dict.fromkeys(text for result in results for text in result.get("findings") or [])),
        "explanations": [each for result in results for each in result.get("explanations") or []],
        "referee": _referee(results),
        "worst": worst(runs),
        "threshold_order": {kind: steady(cells, kind) for kind in KINDS},
    }


def _real_horizons(runs: Sequence[Run], by_task: bool) -> dict[tuple[str, str | None], list[dict[str, Any]]]:
    """Curves of the real rollouts that were scored beside, by environment and task (None: all of them)."""
    found: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    seen: set[str] = set()
    for run in runs:
        control = run.reference()
        if control is None or (key := dump(run.manifest["results"].get("control"))) in seen:
            continue
        seen.add(key)
        data = pool([control])
        env, names = run.manifest["results"]["env"], data.text["task"].names
        for task in [None, *names] if by_task else [None]:
            mine = np.ones(data.n_rollouts, bool) if task is None else data.text["task"].index == names.index(task)
            found.setdefault((env, task), []).append(horizon(data, np.flatnonzero(mine)))
    return found


def _beside(real: dict[tuple[str, str | None], list[dict[str, Any]]], env: str, task: str | None) -> dict[str, Any]:
    """The real curves of a cell; of several references none is chosen."""
    mine = real.get((env, task), [])
    if len(mine) == 1:
        return {"real": mine[0]}
    return {"real": None, "real_reason": "several references" if mine else "no real rollouts of it: give --reference"}


def _group(data: Pool, by_task: bool) -> tuple[list[tuple[int, str, str, str, str | None]], IntArray]:
    """Keys (index of a law, env, level, generator, task) in reading order, and the key of each rollout (N,)."""
    first_of = {law: number for number, law in reversed(list(enumerate(data.laws)))}
    law = np.array([first_of[law] for law in data.laws])[data.run]
    names = ("env", "level", "generator", *(("task",) if by_task else ()))
    columns = np.stack([law, *(data.text[name].index for name in names)], axis=1)  # (N, keys)
    distinct, member = np.unique(columns, axis=0, return_inverse=True)
    keys = []
    for row in distinct:
        texts = [data.text[name].names[index] for name, index in zip(names, row[1:], strict=True)]
        keys.append((int(row[0]), texts[0], texts[1], texts[2], texts[3] if by_task else None))
    order = sorted(range(len(keys)), key=lambda at: _reading_order(keys[at]))
    place = np.empty(len(keys), np.int64)
    place[order] = np.arange(len(keys))
    return [keys[at] for at in order], place[member.reshape(-1)]


def _reading_order(key: tuple[int, str, str, str, str | None]) -> tuple[Any, ...]:
    law, env, level, generator, task = key
    return env, LEVELS.index(level) if level in LEVELS else len(LEVELS), level, generator, task or "", law


def _tables(data: Pool, member: IntArray, cells: int) -> dict[str, list[dict[str, Any]]]:
    """Counts of every code, rule and flag in each cell."""
    step_cell = member[data.rollout]
    tc, dl, codes = data.score["tc"], data.score["dl"], data.step_text["tc_code"]
    # of a verified step the code names what failed, which is no reason why another check has no verdict
    why = Text(["", *codes.names], np.where(np.isnan(tc), codes.index + 1, 0))
    replayed = rates.decided(data.number["gc_replayed"])
    goal = data.text["gc_code"]
    reasons = {
        "transition_correctness": _count(step_cell, codes, np.isnan(tc), cells, "no_reason"),
        "dynamics_legality": _count(step_cell, why, np.isnan(dl), cells, "not_verifiable"),
        "reward_consistency": _count(step_cell, why, np.isnan(data.score["reward_error"]), cells, "no_reward"),
        "goal_consistency": _count(member, goal, np.isnan(data.number["gc_imagined"]), cells, "no_reason"),
        "goal_consistency_replayed": _count(member, goal, np.isnan(replayed), cells, "undecided"),
    }
    rules = _count(step_cell, data.step_text["dl_rule"], dl == 0, cells, "no_rule")
    every_flag = np.ones(len(data.flag.index), bool)
    return {
        "unverifiable": [{name: table[c] for name, table in reasons.items() if table[c]} for c in range(cells)],
        "failed_blocks": _count(step_cell, codes, tc == 0, cells, "no_block"),
        "rules": [dict(list(found.items())[:TOP_RULES]) for found in rules],
        "row0_rules": _count(member, data.text["dl_row0_rule"], data.number["dl_row0"] == 0, cells, "no_rule"),
        "flags": _count(member[data.flag_rollout], data.flag, every_flag, cells, "unnamed"),
    }


def _count(cell: IntArray, text: Text, where: BoolArray, cells: int, unnamed: str) -> list[dict[str, int]]:
    """How often each text occurs in each cell, most frequent first; `unnamed` stands for the empty one."""
    width = max(len(text.names), 1)
    flat = np.bincount(cell[where] * width + text.index[where], minlength=cells * width)
    found = []
    for row in flat.reshape(cells, width):
        total: Counter[str] = Counter()
        for index in np.flatnonzero(row):
            total[text.names[index] or unnamed] += int(row[index])
        found.append(dict(sorted(total.items(), key=lambda item: (-item[1], item[0]))))
    return found


def _mix(task: Text, rows: IntArray) -> dict[str, int]:
    number = np.bincount(task.index[rows], minlength=len(task.names))
    return {task.names[index]: int(number[index]) for index in np.flatnonzero(number)}


def _texts_differ(data: Pool, rows: IntArray) -> int:
    """Rollouts that the benchmark's code judges as another task than their text names."""
    task, released = data.text["task"], data.text["task_released"]
    names = list(dict.fromkeys([*task.names, *released.names]))
    number = {name: index for index, name in enumerate(names)}
    mine = np.array([number[name] for name in task.names] or [0])[task.index[rows]]
    theirs = np.array([number[name] for name in released.names] or [0])[released.index[rows]]
    empty = number.get("", -1)
    return int(((mine != theirs) & (mine != empty) & (theirs != empty)).sum())


def _trivial(data: Pool, counts: Counts, rows: IntArray) -> AnyArray:
    """1 / 0 where the rollout has a task, else NaN."""
    placed = np.array([bool(name) for name in data.text["task"].names] or [False])[data.text["task"].index[rows]]
    return np.where(placed, counts["trivial"].astype(np.float64), np.nan)


def _skill(data: Pool, rollouts: BoolArray) -> rates.Share | None:
    steps = rollouts[data.rollout]
    return rates.of_median(data.score["skill"][steps], data.number["cluster"][data.rollout[steps]], int(steps.sum()))


def _explain(cell: Cell) -> None:
    """Write a reason beside every value that is missing."""
    why = cell["unverifiable"]
    for name in [name for name, value in cell.items() if value is None]:
        stem = name.removesuffix("_rollout").removesuffix("_strict").removesuffix("_released")
        if name in ("task", "calibration"):
            continue
        if name == "fabrication":
            claimed = (cell["goal_consistency"] or {}).get("value")
            text = "no replay has a verdict" if claimed else "no rollout reaches its goal in the imagined rows"
            if cell["goal_is_action"] == cell["n_rollouts"]:
                text = NOT_APPLICABLE
        elif name == "ladder":
            text = "exact environment: every tolerance is 0" if cell["grade"] == "exact" else "nothing verified"
        elif name == "threshold_sweep":
            text = "no threshold: the goals of this environment are met or not"
        elif name == "skill_median":
            text = "no step has a skill value"
        elif name == "row0_legality":
            text = "no rollout is known to start at a reset"
        elif name == "trivial":
            text = "no rollout has a known task"
        else:
            listed = ", ".join(f"{code} {n:,}" for code, n in (why.get(SAME_REASON.get(stem, stem)) or {}).items())
            text = f"nothing verified: {listed}" if listed else "nothing to verify"
        cell[f"{name}_reason"] = text
    for name, value in list(cell["nesting"].items()):
        if value is None:
            cell["nesting"][f"{name}_reason"] = "no such transition"


def _add_floors(cell: Cell, tables: list[dict[str, Any]], mix: dict[str, int]) -> None:
    """Success of no-op and random policies; equal tables of several runs count once, different ones add up."""
    distinct = {dump(table): table for table in tables}.values()
    for policy in ("noop", "random"):
        success: dict[str, tuple[int, int]] = {}
        horizons: set[Any] = set()
        for table in distinct:
            for task in set(mix) & set(table):
                k, n = table[task].get(policy) or (0, 0)
                if n:
                    old = success.get(task, (0, 0))
                    success[task] = (old[0] + int(k), old[1] + int(n))
                    horizons.add((task, table[task].get("horizon")))
        name = f"floor_{policy}"
        cell[name] = None
        if len(horizons) > len(success):
            cell[f"{name}_reason"] = "the runs hold floors of different horizons"
        elif not success:
            cell[f"{name}_reason"] = "no floor was measured for these tasks"
        else:
            steps = {horizon for _, horizon in horizons}
            share = rates.floor(success, mix)
            if share is not None:
                cell[name] = {**share, "horizon": steps.pop() if len(steps) == 1 else None}


def _add_control(cell: Cell, controls: list[dict[str, Any]], tasks: set[str]) -> None:
    """Real rollouts of the cell's tasks, judged by the same code, and what fabrication exceeds them by."""
    distinct = list({dump(control): control for control in controls}.values())
    parts = []
    for control in distinct:
        counts = control_counts(control["rollouts"])
        parts.append(pick(counts, np.array([bool(task) and task in tasks for task in counts["task"]], bool)))
    sources = [str(c["source"]) for c, part in zip(distinct, parts, strict=True) if len(part["length"])]
    cell["control"] = cell["fabrication_control"] = cell["fabrication_excess"] = None
    if not sources:
        reason = "no real rollouts to compare with: give --reference, or a calibration that holds some"
        if distinct:
            reason = "the control has no rollout of these tasks"
        for name in ("control", "fabrication_control", "fabrication_excess"):
            cell[f"{name}_reason"] = reason
        return
    pooled: Counts = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    control = {"source": " + ".join(sources), **core(pooled)}
    for name in [name for name, value in control.items() if value is None]:
        control[f"{name}_reason"] = "nothing verified among the real rollouts"
    cell["control"] = control
    cell["fabrication_control"] = control["fabrication"]
    if control["fabrication"] is None:
        reason = "no real rollout of these tasks reaches its goal with a known replay"
        if control["goal_is_action"] == control["n_rollouts"]:
            reason = NOT_APPLICABLE
        cell["fabrication_control_reason"] = cell["fabrication_excess_reason"] = reason
    elif cell["fabrication"] is None:
        cell["fabrication_excess_reason"] = cell["fabrication_reason"]
    else:
        cell["fabrication_excess"] = rates.excess(cell["fabrication"], control["fabrication"])


def _referee(results: list[dict[str, Any]]) -> dict[str, int] | None:
    """Transitions that were stepped again in the real simulator, over all runs."""
    have = [result["referee"] for result in results if result.get("referee")]
    if not have:
        return None
    return {name: sum(int(item.get(name, 0)) for item in have) for name in ("checked", "agreed")}
