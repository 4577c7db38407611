"""A report as small tables of text, the same for a terminal, Markdown and LaTeX."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from qualcheck.reports.cells import Cell, Report

SHARES = {
    "goal_consistency": "goal consistency",
    "goal_consistency_released": "goal consistency (released predicate)",
    "goal_consistency_replayed": "goal reached in replay",
    "fabrication": "fabrication",
    "fabrication_control": "fabrication, real rollouts",
    "fabrication_excess": "fabrication excess",
    "transition_correctness": "transition correctness",
    "transition_correctness_rollout": "wholly correct rollouts",
    "transition_correctness_strict": "strict transition correctness",
    "skill_median": "median skill",
    "dynamics_legality": "dynamics legality",
    "dynamics_legality_rollout": "wholly legal rollouts",
    "row0_legality": "legal first rows",
    "reward_consistency": "reward consistency",
    "consistency": "sub-goals reached",
    "consistency_replayed": "sub-goals reached in replay",
    "trivial": "goal true at the start",
    "floor_noop": "no-op policy",
    "floor_random": "random policy",
    "ladder": "ladder",
    "control": "real rollouts",
}
MOST = 10  # kinds that one line of a report lists
HEADLINE = ("goal_consistency", "transition_correctness", "dynamics_legality")
FABRICATION = {"fabrication": "imagined", "fabrication_control": "real rollouts", "fabrication_excess": "excess"}
WHOLE = {
    "transition_correctness_rollout": "all steps correct",
    "dynamics_legality_rollout": "all steps legal",
    "row0_legality": "legal first row",
}
TASK = {"consistency": "sub-goals reached", "trivial": "true at start", "reward_consistency": "reward right"}
NESTING = {
    "correct_that_are_legal": "correct steps that are legal",
    "legal_that_are_correct": "legal steps that are correct",
}
RUNGS = ("0.1", "0.25", "0.5", "1")


@dataclass
class Section:
    title: str
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)  # the first column is a name, the others figures
    lines: list[str] = field(default_factory=list)  # sentences under the table


def sections(report: Report) -> list[Section]:
    """What a reader sees, most important first; only sections with something to say."""
    cells = report["cells"]
    if not cells:
        return [Section("Quality", lines=["The run holds no rollouts."])]
    names = _labels(cells)
    parts = [
        _headline(cells, names),
        _table(cells, names, "Goals, imagined against replayed", ["replayed", "released predicate"], _goals),
        _matrix(cells, names),
        _table(
            cells, names, "Fabrication: goal reached in the imagined rows, not in the replay", *_columns(FABRICATION)
        ),
        _sizes(cells, names),
        _table(cells, names, "Whole rollouts", *_columns(WHOLE)),
        _table(cells, names, "Correct and legal", [*NESTING.values(), "strict correctness"], _nesting),
        _table(cells, names, "Task and reward", *_columns(TASK)),
        _table(cells, names, "Correct within S standard deviations of the real change", list(RUNGS), _ladder),
        _sweep(report, names),
        _horizon(cells, names),
        _table(cells, names, "Skill against an unmoved row (1 perfect)", ["median"], _skill),
        _counts(cells, names, "Not verifiable, by reason", _reasons),
        _counts(cells, names, "What failed", _failures),
        _counts(cells, names, "Flags", lambda cell: [_listed(cell["flags"])]),
        _missing(cells, names),
        _worst(report),
        Section("Explanations", lines=[each["text"] for each in report["explanations"]]),
        Section("Findings", lines=[*report["findings"], *_notes(cells, names), *_referee(report)]),
    ]
    return [part for part in parts if part.lines or any(set(row[1:]) - {"-"} for row in part.rows)]


def figure(share: dict[str, Any] | None, scale: float = 100.0) -> str:
    """A value with its interval, to as many places as two digits of the half width need; "-" where it is missing."""
    if share is None:
        return "-"
    places = decimals((share["high"] - share["low"]) / 2 * scale)
    value, low, high = (f"{share[key] * scale + 0.0:.{places}f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def decimals(half_width: float) -> int:
    """Places after the point that show two digits of an uncertainty, 0 to 4."""
    return 1 if half_width <= 0 else min(4, max(0, 1 - math.floor(math.log10(half_width))))


def coverage(share: dict[str, Any] | None) -> str:
    """Verified share, and between which limits the value lies whatever the rest is."""
    if share is None:
        return "-"
    if share["coverage"] >= 1:
        return "100"
    places = decimals((share["high_all"] - share["low_all"]) / 2 * 100)
    shown = f"{math.floor(share['coverage'] * 1000) / 10:.1f}"  # downwards: never 100 for less than all
    return f"{shown} ({share['low_all'] * 100:.{places}f} to {share['high_all'] * 100:.{places}f})"


def _sweep(report: Report, names: list[str]) -> Section:
    """Goal rates at half, one and two times the thresholds, and where the order of cells holds."""
    shown = (0.5, 0.8, 1.0, 1.25, 2.0)
    header = ["cell", *(f"{multiple:g} x" for multiple in shown), *(f"replayed {m:g} x" for m in (0.5, 1.0, 2.0))]
    part = Section("Goal rate by multiple of the success thresholds, percent", header)
    for name, cell in zip(names, report["cells"], strict=True):
        found = cell["threshold_sweep"]
        if found is None:
            continue
        at = found["multiples"].index

        def rates(kind: str, multiples: tuple[float, ...], found: dict[str, Any] = found, at: Any = at) -> list[str]:
            known = found[kind]["rates"]
            return ["-" if known is None else f"{100 * known[at(multiple)]:.1f}" for multiple in multiples]

        part.rows.append([name, *rates("imagined", shown), *rates("replayed", (0.5, 1.0, 2.0))])
    for kind, order in report["threshold_order"].items():
        if order is not None and part.rows:
            part.lines.append(
                f"No two of {order['cells']} cells change places, goals {kind}, from {order['from']:g} to "
                f"{order['to']:g} times the thresholds."
            )
    return part


def _horizon(cells: list[Cell], names: list[str]) -> Section:
    """Steps for which imagined rollouts stay within the judging grade, beside those of real ones."""
    header = ["cell", "teacher-forced", "open loop", "error at first and last step", "open loop", "doubles in"]
    part = Section("Usable horizon: steps that 9 of 10 rollouts stay within the judging grade", header)
    for name, cell in zip(names, cells, strict=True):
        rows = [(name, cell["horizon"])]
        if cell["horizon"]["real"] is not None:
            rows.append(("  real rollouts", cell["horizon"]["real"]))
        for label, found in rows:
            grown = found["open_loop"].get("growth")
            part.rows.append(
                [
                    label,
                    _usable(found["teacher_forced"]["usable"]),
                    _usable(found["open_loop"]["usable"]),
                    _ends_of(found["teacher_forced"]["curve"]),
                    _ends_of(found["open_loop"]["curve"]),
                    f"{grown['doubling_steps']:.2g} steps" if grown and grown["doubling_steps"] else "-",
                ]
            )
    units = dict.fromkeys(cell["horizon"]["unit"] for cell in cells)
    part.lines.append(f"Errors are medians in {' or '.join(units)}; > means that the record ends first.")
    return part


def _worst(report: Report) -> Section:
    """Rollouts to look at first."""
    header = ["rollout", "task", "return", "correct", "first fault", "why"]
    part = Section("Worst rollouts: claimed or rewarded, and refuted", header)
    several = len({entry["run"] for entry in report["worst"]}) > 1
    for entry in report["worst"]:
        part.rows.append(
            [
                f"{entry['rollout']} of run {entry['run'] + 1}" if several else str(entry["rollout"]),
                entry["task"] or "(no task)",
                "-" if entry["imagined_return"] is None else f"{entry['imagined_return']:.3g}",
                "-" if entry["correctness"] is None else f"{100 * entry['correctness']:.0f}",
                str(entry["first_fault_step"]) if entry["first_fault_step"] >= 0 else "-",
                entry["why"].split(":")[0],
            ]
        )
    if report["worst"]:
        part.lines.append(f"Look at one with: qualcheck inspect RUN {report['worst'][0]['rollout']}")
    return part


def _usable(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{'> ' if found['at_least'] else ''}{found['value']} [{found['low']}, {found['high']}]"


def _ends_of(curve: list[dict[str, Any]]) -> str:
    return f"{curve[0]['median']:.2g} to {curve[-1]['median']:.2g}" if curve else "-"


def _labels(cells: list[Cell]) -> list[str]:
    """Names of cells; the law is named only where the cells differ in it."""
    laws = [key for key in ("definitions", "grade", "predicates", "calibration") if len({c[key] for c in cells}) > 1]
    names = []
    many = len({cell["env"] for cell in cells}) > 1
    for cell in cells:
        parts = [cell["env"] if many else "", cell["level"], cell["generator"]]
        if cell["task"] is not None:
            parts.append(cell["task"] or "(no task)")
        parts += [f"{key} {str(cell[key])[:12]}" for key in laws if key != "grade" or _same_env_differs(cells, cell)]
        names.append(" · ".join(part for part in parts if part))
    return names


def _same_env_differs(cells: list[Cell], cell: Cell) -> bool:
    return any(other["env"] == cell["env"] and other["grade"] != cell["grade"] for other in cells)


def _headline(cells: list[Cell], names: list[str]) -> Section:
    whose = ", ".join(dict.fromkeys(cell["env"] for cell in cells))
    part = Section(f"Quality of {whose}, percent with 95 % intervals", ["cell", *(SHARES[name] for name in HEADLINE)])
    for name, cell in zip(names, cells, strict=True):
        part.rows.append([name, *(figure(cell[metric]) for metric in HEADLINE)])
        part.rows.append(["  verified (limits)", *(coverage(cell[metric]) for metric in HEADLINE)])
        if cell["control"] is not None:
            part.rows.append(["  real rollouts", *(figure(cell["control"][metric]) for metric in HEADLINE)])
        for policy in ("floor_noop", "floor_random"):
            if cell[policy] is not None:
                part.rows.append([f"  {SHARES[policy]}", figure(cell[policy]), "", ""])
    part.lines.append(
        "Limits: every step or rollout that could not be verified counted wrong, and right. "
        f"Grade {', '.join(sorted({c['grade'] for c in cells}))}; definitions {cells[0]['definitions']}."
    )
    sources = dict.fromkeys(cell["control"]["source"] for cell in cells if cell["control"] is not None)
    part.lines += [f"Real rollouts: {source}." for source in sources]
    if any(cell["floor_random"] is not None for cell in cells):
        steps = sorted({c["floor_random"]["horizon"] for c in cells if c["floor_random"]} - {None})
        within = f"within {' or '.join(map(str, steps))} steps, " if steps else ""
        part.lines.append(f"No-op and random policy: {within}weighted by the tasks of the cell.")
    for name, cell in zip(names, cells, strict=True):
        floor, reached = cell["floor_random"], cell["goal_consistency"]
        if floor and reached and floor["high"] >= reached["low"]:
            part.lines.append(f"{name}: goal consistency is not clearly above what a random policy reaches.")
    return part


def _table(cells: list[Cell], names: list[str], title: str, header: list[str], row: Any) -> Section:
    rows = [[name, *row(cell)] for name, cell in zip(names, cells, strict=True)]
    return Section(title, ["cell", *header], rows)


def _columns(metrics: dict[str, str]) -> tuple[list[str], Any]:
    return list(metrics.values()), lambda cell: [figure(cell[metric]) for metric in metrics]


def _goals(cell: Cell) -> list[str]:
    same = cell["goal_consistency"] == cell["goal_consistency_released"] and not cell["predicates_differ"]["imagined"]
    released = "as intended" if same and cell["goal_consistency"] else figure(cell["goal_consistency_released"])
    return [figure(cell["goal_consistency_replayed"]), released]


def _matrix(cells: list[Cell], names: list[str]) -> Section:
    kinds = ("genuine", "fabricated", "hidden", "failure", "unknown")
    rows = []
    for name, cell in zip(names, cells, strict=True):
        acted = cell["goal_is_action"] == cell["n_rollouts"]
        rows.append([name, *("-" if acted else f"{cell['goal_matrix'][kind]:,}" for kind in kinds)])
    legend = ["Genuine: imagined and replayed; fabricated: imagined only; hidden: replayed only; failure: neither."]
    if any(cell["goal_is_action"] for cell in cells):
        legend.append("Rollouts whose goal an action itself meets are left out: not applicable.")
    return Section("Goal matrix, rollouts", ["cell", *kinds], rows, legend)


def _sizes(cells: list[Cell], names: list[str]) -> Section:
    keys = {"n_rollouts": "rollouts", "n_transitions": "transitions", "n_clusters": "clusters"}
    rows = [[name, *(f"{cell[key]:,}" for key in keys)] for name, cell in zip(names, cells, strict=True)]
    return Section("Sizes", ["cell", *keys.values()], rows, ["Cluster: rollouts with the same start and instruction."])


def _nesting(cell: Cell) -> list[str]:
    nesting = cell["nesting"]
    strict = "as judged" if cell["grade"] == "exact" else figure(cell["transition_correctness_strict"])
    return [*(figure(nesting[name]) for name in NESTING), strict]


def _ladder(cell: Cell) -> list[str]:
    return [figure((cell["ladder"] or {}).get(bar)) for bar in RUNGS]


def _skill(cell: Cell) -> list[str]:
    return [figure(cell["skill_median"], scale=1)]


def _counts(cells: list[Cell], names: list[str], title: str, lines: Any) -> Section:
    found = [(name, line) for name, cell in zip(names, cells, strict=True) for line in lines(cell) if line]
    return Section(title, lines=[f"{name}: {line}" for name, line in found])


def _listed(counts: dict[str, int], most: int = MOST) -> str:
    listed = [f"{name} {number:,}" for name, number in list(counts.items())[:most]]
    if len(counts) > most:
        listed.append(f"and {len(counts) - most} more kinds")
    return ", ".join(listed)


def _reasons(cell: Cell) -> list[str]:
    return [f"{SHARES[metric]}: {_listed(counts)}" for metric, counts in cell["unverifiable"].items()]


def _failures(cell: Cell) -> list[str]:
    kinds = {"failed_blocks": "wrong in", "rules": "rules broken", "row0_rules": "first-row rules broken"}
    return [f"{text}: {_listed(cell[key])}" for key, text in kinds.items() if cell[key]]


def _missing(cells: list[Cell], names: list[str]) -> Section:
    """Each reason once, with the values it explains and the cells it holds for."""
    reasons: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for name, cell in zip(names, cells, strict=True):
        for metric, text in SHARES.items():
            if cell[metric] is None and metric != "ladder":
                what, where = reasons.setdefault(cell[f"{metric}_reason"], ({}, {}))
                what[text] = where[name] = None
    lines = []
    for reason, (what, where) in reasons.items():
        scope = "every cell" if len(where) == len(cells) else ", ".join(where)
        lines.append(f"{', '.join(what)} ({scope}): {reason}")
    return Section("Not available", lines=lines)


def _notes(cells: list[Cell], names: list[str]) -> list[str]:
    notes = []
    for name, cell in zip(names, cells, strict=True):
        differ = cell["predicates_differ"]
        if differ["imagined"] or differ["replayed"]:
            notes.append(
                f"{name}: the released predicate differs from the intended one on {differ['imagined']:,} rollouts as "
                f"imagined and {differ['replayed']:,} as replayed."
            )
        if differ["texts"]:
            notes.append(f"{name}: the benchmark judges {differ['texts']:,} rollouts as another task than their text.")
    return notes


def _referee(report: Report) -> list[str]:
    referee = report["referee"]
    if referee is None:
        return []
    return [f"Stepped again in the real simulator: {referee['checked']:,} transitions, {referee['agreed']:,} agree."]
