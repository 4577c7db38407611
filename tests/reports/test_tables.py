from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

from qualcheck.errors import UnknownName
from qualcheck.reports.cells import build_report
from qualcheck.reports.sections import coverage, decimals, figure
from qualcheck.reports.tables import escape_latex, render, width

NAN = float("nan")
NASTY = r"[*50% of a_b & c#d$ {x}~^\ <i>|`q`* é 迷宮"
UNESCAPED = re.compile(r"(?<!\\)[%#_]")


def full_run(make_run: Any, **rollouts: Any) -> Any:
    """Half of 40 rollouts imagined to succeed, two of these fabricated, one predicate apart, all else present."""
    floors = {"t": {"noop": [0, 100], "random": [13, 100], "horizon": 128}}
    real = {
        "task": ["t"] * 20, "level": ["real"] * 20, "cluster": list(range(20)), "length": [2] * 20,
        "gc_imagined": [1] * 20, "gc_replayed": [1] * 19 + [0], "gc_imagined_released": [1] * 20,
        "gc_replayed_released": [1] * 20, "tc_pass": [2] * 20, "tc_n": [2] * 20, "dl_pass": [2] * 20, "dl_n": [2] * 20,
    }  # fmt: skip
    columns = {
        "gc_imagined": [1.0] * 20 + [0.0] * 19 + [NAN],
        "gc_replayed": [0.0] * 2 + [1.0] * 18 + [0.0] * 20,
        "gc_imagined_released": [0.0] * 40,
        "gc_replayed_released": [0.0] * 40,
        "gc_code": [""] * 39 + ["ambiguous_instruction"],
        "flags": [["duplicate"]] + [[]] * 39,
    }
    results = {
        "floors": floors,
        "control": {"source": "golden, held-out half", "rollouts": real},
        "findings": ["actions are stored as int64"],
        "referee": {"checked": 80, "agreed": 80},
    }
    steps = {
        "tc": [1.0] * 70 + [0.0] * 9 + [NAN],
        "tc_code": [""] * 70 + ["agent"] * 9 + ["no_next_observation"],
        "dl": [1.0] * 72 + [0.0] * 7 + [NAN],
        "dl_rule": [""] * 72 + ["step.teleport"] * 7 + [""],
    }
    return make_run([2] * 40, rollouts=columns | rollouts, steps=steps, results=results)


def test_the_terminal_shows_the_three_metrics_first_and_fits_100_columns(make_run: Any) -> None:
    text = render(build_report([full_run(make_run)]))
    lines = text.splitlines()
    assert "goal consistency" in lines[1]
    assert "transition correctness" in lines[1]
    assert "dynamics legality" in lines[1]
    # 20 of 39: Clopper-Pearson 34.8 to 67.6, so whole percents show two digits of the half width
    assert re.search(r"hard · g +51 \[35, 68\]", lines[3])
    assert max(map(width, lines)) <= 100
    assert text.index("Goal matrix") < text.index("Fabrication") < text.index("Not verifiable")


def test_the_terminal_says_all_that_an_auditor_needs(make_run: Any) -> None:
    text = render(build_report([full_run(make_run)]))
    for expected in (
        "97.5 (",  # coverage with its limits
        "real rollouts",
        "no-op policy",
        "random policy",
        "golden, held-out half",
        "ambiguous_instruction 1",
        "no_next_observation 1",
        "rules broken: step.teleport 7",
        "wrong in: agent 9",
        "duplicate 1",
        "actions are stored as int64",
        "80 transitions, 80 agree",
        "released predicate differs from the intended one on 20 rollouts",
    ):
        assert expected in text, expected


def test_a_missing_value_is_a_dash_with_its_reason(make_run: Any) -> None:
    text = render(build_report([make_run([1], rollouts={"gc_code": "no_instruction"}, steps={"tc_code": "carried"})]))
    row = next(line for line in text.splitlines() if line.startswith("hard · g"))
    assert row.split()[-3:] == ["-", "-", "-"]
    assert "nothing verified: no_instruction 1" in " ".join(text.split())
    assert "nan" not in text.lower()


@pytest.mark.parametrize("format", ["table", "md", "csv", "tex", "json"])
def test_every_format_takes_an_empty_run_and_a_single_rollout(make_run: Any, format: str) -> None:
    empty = render(build_report([make_run([], name="empty")]), format)
    single = render(build_report([make_run([1], steps={"tc": 1.0})]), format)
    assert empty.endswith("\n")
    assert single.endswith("\n")
    assert not re.search(r"\bnan\b", (empty + single).lower())


def test_json_is_the_report_sorted_and_deterministic(make_run: Any) -> None:
    report = build_report([full_run(make_run)])
    text = render(report, "json")
    assert json.loads(text) == report
    assert text == render(build_report([full_run(make_run_again(make_run))]), "json")
    keys = list(json.loads(text)["cells"][0])
    assert keys == sorted(keys)


def make_run_again(make_run: Any) -> Any:
    return lambda *args, **kwargs: make_run(*args, **kwargs, name="again")


def test_csv_holds_every_value_at_full_precision(make_run: Any) -> None:
    report = build_report([full_run(make_run, generator=NASTY)])
    rows = list(csv.DictReader(io.StringIO(render(report, "csv"))))
    assert {row["generator"] for row in rows} == {NASTY}
    by_name = {row["metric"]: row for row in rows}
    assert float(by_name["goal_consistency"]["value"]) == report["cells"][0]["goal_consistency"]["value"]
    assert by_name["control.transition_correctness"]["n"] == "40"
    assert by_name["goal_matrix.fabricated"]["value"] == "2"
    assert by_name["unverifiable.transition_correctness.no_next_observation"]["value"] == "1"
    assert by_name["skill_median"]["value"] == ""
    assert by_name["skill_median"]["reason"] == "no step has a skill value"


def test_latex_escapes_every_special_character_and_is_balanced(make_run: Any) -> None:
    text = render(build_report([full_run(make_run, generator=NASTY, task=NASTY)], by_task=True), "tex")
    body = text.split("\n", 1)[1]
    assert not UNESCAPED.search(body)
    assert r"50\% of a\_b \& c\#d\$ \{x\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in body
    assert "迷宮" in body
    for line in body.splitlines():
        plain = line.replace(r"\{", "").replace(r"\}", "")
        assert plain.count("{") == plain.count("}")
        # a bracket or star that follows a line end would be taken as its argument
        assert not re.match(r"\s*(\\quad )?[\[*]", line)
    assert body.count(r"\begin{tabular}") == body.count(r"\end{tabular}") == body.count(r"\toprule")
    for table in re.findall(r"\\begin\{tabular\}\{l(r*)\}(.*?)\\end\{tabular\}", body, re.S):
        rows = [line for line in table[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table[0])}


def test_latex_escape_leaves_no_character_of_ascii_with_a_meaning() -> None:
    for character in map(chr, range(32, 127)):
        escaped = escape_latex(character)
        if character in r"\{}$&#^_~%":
            assert escaped != character
        elif character.isalnum():
            assert escaped == character


def test_markdown_names_cannot_break_a_row(make_run: Any) -> None:
    text = render(build_report([full_run(make_run, generator=NASTY)]), "md")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    counts = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    headers = [at for at, line in enumerate(tables) if line.startswith("|---")]
    for at in headers:
        assert counts[at] == counts[at - 1] == counts[at + 1]
    assert "<i>" not in text.replace("\\<", "")


def test_control_characters_of_a_file_do_not_reach_the_terminal(make_run: Any) -> None:
    text = render(build_report([full_run(make_run, generator="\x1b[31mred\r\nline")]))
    assert "\x1b" not in text
    assert r"\x1b[31mred\x0d\x0aline" in text


def test_mixed_cells_name_what_sets_them_apart(make_run: Any) -> None:
    runs = [
        make_run([1], name="one", results={"calibration": "aaaa"}),
        make_run([1], name="two", results={"calibration": "bbbb"}),
    ]
    text = render(build_report(runs, mixed=True))
    assert "calibration aaaa" in text
    assert "calibration bbbb" in text


def test_figures_show_two_digits_of_their_uncertainty() -> None:
    share = {"value": 0.258, "low": 0.236, "high": 0.281}
    assert figure(share) == "25.8 [23.6, 28.1]"
    assert figure({"value": 1.0, "low": 0.99999, "high": 1.0}) == "100.0000 [99.9990, 100.0000]"
    assert figure({"value": 0.5, "low": 0.1, "high": 0.9}) == "50 [10, 90]"
    assert figure({"value": -0.0, "low": -0.1, "high": 0.1}) == "0 [-10, 10]"
    assert [decimals(w) for w in (40, 10, 9.9, 1, 0.99, 0.05, 1e-9, 0)] == [0, 0, 1, 1, 2, 3, 4, 1]


def test_coverage_never_rounds_up_to_all() -> None:
    share = {"coverage": 0.99999, "low_all": 0.2, "high_all": 0.4}
    assert coverage(share).startswith("99.9 (20 to 40")
    assert coverage(share | {"coverage": 1.0}) == "100"


def test_an_unknown_format_is_named_with_the_known_ones(make_run: Any) -> None:
    with pytest.raises(UnknownName, match=r"jsn.*csv.*json"):
        render(build_report([make_run([1])]), "jsn")
