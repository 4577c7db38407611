from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from qualcheck.errors import DataError, UsageError
from qualcheck.manifest import dump
from qualcheck.reports.cells import build_report
from qualcheck.stats import clopper_pearson, difference, korn_graubard

NAN = float("nan")
SHARE_KEYS = {"value", "low", "high", "n", "coverage", "low_all", "high_all"}
KEYS = [
    "env",
    "level",
    "generator",
    "task",
    "grade",
    "predicates",
    "n_rollouts",
    "n_transitions",
    "n_clusters",
    "unverifiable",
    "flags",
]
VALUES = [
    "goal_consistency",
    "goal_consistency_released",
    "goal_consistency_replayed",
    "fabrication",
    "fabrication_control",
    "fabrication_excess",
    "transition_correctness",
    "transition_correctness_rollout",
    "transition_correctness_strict",
    "ladder",
    "skill_median",
    "dynamics_legality",
    "dynamics_legality_rollout",
    "reward_consistency",
    "floor_noop",
    "floor_random",
    "control",
]


def control(**columns: list[Any]) -> dict[str, Any]:
    size = len(columns["task"])
    rest = {name: [1] * size for name in ("gc_imagined_released", "gc_replayed_released", "tc_pass", "tc_n", "dl_pass")}
    rest |= {"level": ["real"] * size, "cluster": list(range(size)), "length": [1] * size, "dl_n": [1] * size}
    return {"source": "golden, held out", "rollouts": rest | columns}


def test_every_rate_of_a_cell_is_the_one_counted_by_hand(make_run: Any) -> None:
    """Four rollouts of 3, 2, 2 and 1 steps; step 2 of the first cannot be verified."""
    run = make_run(
        [3, 2, 2, 1],
        rollouts={
            "gc_imagined": [1.0, 1.0, 0.0, NAN],
            "gc_replayed": [1.0, 0.0, 0.0, 1.0],
            "gc_imagined_released": [1.0, 0.0, 0.0, NAN],
            "gc_code": ["", "", "", "no_instruction"],
            "consistency": [1.0, 0.5, 0.0, NAN],
            "cluster": [7, 7, 8, 9],
            "flags": [["duplicate"], [], ["duplicate", "mask_hole"], []],
            "dl_row0": [1.0, 0.0, NAN, NAN],
            "dl_row0_rule": ["", "row0.agent", "", ""],
        },
        steps={
            "tc": [1.0, 1.0, NAN, 1.0, 0.0, 1.0, 1.0, 0.0],
            "tc_strict": [1.0, 1.0, NAN, 1.0, 0.0, 1.0, 1.0, 0.0],
            "tc_code": ["", "", "no_next_observation", "", "agent", "", "", "agent+door"],
            "dl": [1.0, 1.0, NAN, 1.0, 1.0, 1.0, 0.0, 0.0],
            "dl_rule": ["", "", "", "", "", "", "step.wall", "step.wall"],
            "reward_error": [0.0, 1e-6, NAN, 0.5, 0.0, 0.0, 0.0, 0.0],
        },
    )
    (cell,) = build_report([run])["cells"]
    assert (cell["n_rollouts"], cell["n_transitions"], cell["n_clusters"]) == (4, 8, 3)
    goal = cell["goal_consistency"]
    assert (goal["value"], goal["n"], goal["coverage"]) == (2 / 3, 3, 0.75)
    assert (goal["low"], goal["high"]) == clopper_pearson(2, 3)
    assert (goal["low_all"], goal["high_all"]) == (clopper_pearson(2, 4).low, clopper_pearson(3, 4).high)
    assert cell["goal_consistency_released"]["value"] == 1 / 3
    assert cell["goal_consistency_replayed"]["value"] == 0.5
    assert cell["goal_matrix"] == {"genuine": 1, "fabricated": 1, "hidden": 0, "failure": 1, "unknown": 1}
    assert (cell["fabrication"]["value"], cell["fabrication"]["n"]) == (0.5, 2)
    assert cell["predicates_differ"] == {"imagined": 1, "replayed": 0, "texts": 0}

    correct = cell["transition_correctness"]
    assert (correct["value"], correct["n"], correct["coverage"]) == (5 / 7, 7, 7 / 8)
    # clusters: rollouts 0 and 1 (3 of 4), rollout 2 (2 of 2), rollout 3 (0 of 1)
    assert (correct["low"], correct["high"]) == korn_graubard(np.array([3, 2, 0]), np.array([4, 2, 1]))[:2]
    assert correct["low_all"] == min(correct["low"], korn_graubard(np.array([3, 2, 0]), np.array([5, 2, 1])).low)
    assert correct["high_all"] == max(correct["high"], korn_graubard(np.array([4, 2, 0]), np.array([5, 2, 1])).high)
    whole = cell["transition_correctness_rollout"]
    assert (whole["value"], whole["n"], whole["coverage"]) == (0.5, 4, 1.0)
    # rollout 0 is right as far as it was verified: wrong at worst
    assert (whole["low_all"], whole["high_all"]) == (clopper_pearson(1, 4).low, clopper_pearson(2, 4).high)
    assert cell["dynamics_legality"]["value"] == 5 / 7
    assert cell["dynamics_legality_rollout"]["value"] == 0.5
    assert cell["row0_legality"]["value"] == 0.5
    assert cell["consistency"]["value"] == 0.5
    assert cell["nesting"]["correct_that_are_legal"]["value"] == 4 / 5
    assert cell["nesting"]["legal_that_are_correct"]["value"] == 4 / 5
    assert cell["reward_consistency"]["value"] == 6 / 7
    assert cell["trivial"]["value"] == 0

    assert cell["unverifiable"] == {
        "transition_correctness": {"no_next_observation": 1},
        "dynamics_legality": {"no_next_observation": 1},
        "reward_consistency": {"no_next_observation": 1},
        "goal_consistency": {"no_instruction": 1},
    }
    assert cell["failed_blocks"] == {"agent": 1, "agent+door": 1}
    assert cell["rules"] == {"step.wall": 2}
    assert cell["row0_rules"] == {"row0.agent": 1}
    assert cell["flags"] == {"duplicate": 2, "mask_hole": 1}
    assert cell["ladder"] is None
    assert "exact" in cell["ladder_reason"]


def test_a_cell_has_every_key_of_the_interface(make_run: Any) -> None:
    report = build_report([make_run([1], steps={"tc": 1.0, "dl": 1.0})])
    assert (report["schema"], report["definitions"]) == (1, 1)
    (cell,) = report["cells"]
    assert {*KEYS, *VALUES} <= set(cell)
    assert set(cell["transition_correctness"]) == SHARE_KEYS


def test_a_cell_with_nothing_verified_has_nulls_with_reasons_and_no_nan(make_run: Any) -> None:
    run = make_run([2, 1], rollouts={"gc_code": "no_instruction", "task": ""}, steps={"tc_code": "illegal_start"})
    report = build_report([run])
    (cell,) = report["cells"]
    for name in VALUES:
        assert cell[name] is None, name
        assert cell[f"{name}_reason"], name
    assert cell["transition_correctness_reason"] == "nothing verified: illegal_start 3"
    assert cell["goal_consistency_reason"] == "nothing verified: no_instruction 2"
    assert json.loads(dump(report)) == report


def test_no_rollouts_make_no_cells(make_run: Any) -> None:
    report = build_report([make_run([])])
    assert report["cells"] == []
    dump(report)


def test_a_rollout_without_steps_counts_as_a_rollout_with_nothing_verified(make_run: Any) -> None:
    (cell,) = build_report([make_run([0, 1], steps={"tc": 1.0})])["cells"]
    assert cell["transition_correctness"]["coverage"] == 1.0
    assert cell["transition_correctness_rollout"]["coverage"] == 0.5


def test_one_right_rollout_is_not_certain(make_run: Any) -> None:
    (cell,) = build_report([make_run([50], rollouts={"gc_imagined": 1.0}, steps={"tc": 1.0})])["cells"]
    for metric in ("goal_consistency", "transition_correctness"):
        assert cell[metric]["value"] == 1.0
        assert cell[metric]["low"] == pytest.approx(0.025)


def test_cells_follow_the_order_of_levels_and_split_by_task_on_request(make_run: Any) -> None:
    run = make_run(
        [1, 1, 1, 1],
        rollouts={"level": ["hard", "real", "extra", "hard"], "task": ["b", "a", "a", "a"], "gc_imagined": 1.0},
    )
    assert [cell["level"] for cell in build_report([run])["cells"]] == ["real", "hard", "extra"]
    keys = [(cell["level"], cell["task"]) for cell in build_report([run], by_task=True)["cells"]]
    assert keys == [("real", "a"), ("hard", "a"), ("hard", "b"), ("extra", "a")]


def test_a_replay_between_the_bars_is_undecided(make_run: Any) -> None:
    run = make_run([1] * 4, rollouts={"gc_imagined": 1.0, "gc_replayed": [1.0, 0.5, 0.05, 0.9]})
    (cell,) = build_report([run])["cells"]
    assert cell["goal_matrix"] == {"genuine": 1, "fabricated": 1, "hidden": 0, "failure": 0, "unknown": 2}
    assert cell["fabrication"]["coverage"] == 0.5
    assert cell["unverifiable"]["goal_consistency_replayed"] == {"undecided": 2}


def test_fabrication_excess_is_the_difference_to_real_rollouts_of_the_same_tasks(make_run: Any) -> None:
    real = control(
        task=["t", "t", "t", "other"], gc_imagined=[1, 1, 1, 1], gc_replayed=[1, 1, 0, 0], tc_pass=[1, 0, 1, 0]
    )
    run = make_run(
        [1] * 4, rollouts={"gc_imagined": 1.0, "gc_replayed": [1.0, 0.0, 0.0, 0.0]}, results={"control": real}
    )
    (cell,) = build_report([run])["cells"]
    assert cell["control"]["n_rollouts"] == 3
    assert cell["control"]["source"] == "golden, held out"
    assert cell["control"]["transition_correctness"]["value"] == 2 / 3
    assert cell["fabrication_control"]["value"] == pytest.approx(1 / 3)
    excess = cell["fabrication_excess"]
    assert excess["value"] == pytest.approx(3 / 4 - 1 / 3)
    limits = difference(3 / 4, clopper_pearson(3, 4), 1 / 3, clopper_pearson(1, 3))
    assert (excess["low"], excess["high"]) == pytest.approx(limits)
    assert (excess["low_all"], excess["high_all"]) == pytest.approx(limits)
    assert (excess["n"], excess["n_control"]) == (4, 3)


def test_without_a_control_no_excess_is_given(make_run: Any) -> None:
    verdicts = {"gc_imagined": 1.0, "gc_replayed": 0.0}
    (cell,) = build_report([make_run([1], rollouts=verdicts)])["cells"]
    assert cell["fabrication"]["value"] == 1.0
    assert cell["fabrication_excess"] is None
    assert "--reference" in cell["fabrication_excess_reason"]
    other = control(task=["other", ""], gc_imagined=[1, 1], gc_replayed=[1, None])
    (cell,) = build_report([make_run([1], rollouts=verdicts, results={"control": other}, name="b")])["cells"]
    assert cell["control"] is None
    assert cell["control_reason"] == "the control has no rollout of these tasks"


def test_unknown_control_replays_widen_the_limits_of_the_excess(make_run: Any) -> None:
    real = control(task=["t"] * 4, gc_imagined=[1] * 4, gc_replayed=[1, 1, None, None])
    run = make_run([1] * 4, rollouts={"gc_imagined": 1.0, "gc_replayed": 0.0}, results={"control": real})
    excess = build_report([run])["cells"][0]["fabrication_excess"]
    # at worst both unknown real replays fail: 1 - 2/4 with the limits of 4 of 4 and 2 of 4
    worst = difference(1.0, clopper_pearson(4, 4), 0.5, clopper_pearson(2, 4)).low
    assert worst < excess["low"]
    assert excess["low_all"] == pytest.approx(worst)


def test_floors_are_weighted_by_the_tasks_of_the_cell(make_run: Any) -> None:
    floors = {
        "a": {"noop": [0, 100], "random": [100, 100], "horizon": 128},
        "b": {"noop": [0, 100], "random": [20, 100], "horizon": 128},
    }
    run = make_run([1] * 5, rollouts={"task": ["a", "b", "b", "b", "c"]}, results={"floors": floors})
    (cell,) = build_report([run])["cells"]
    assert cell["floor_random"]["value"] == pytest.approx(0.25 * 1 + 0.75 * 0.2)
    assert cell["floor_random"]["coverage"] == 0.8
    # 1 / (0.25^2/100 + 0.75^2/100) = 160 episodes
    limits = clopper_pearson(0.4 * 160, 160)
    assert (cell["floor_random"]["low"], cell["floor_random"]["high"]) == pytest.approx(limits)
    assert cell["floor_noop"]["value"] == 0
    by_task = build_report([run], by_task=True)["cells"]
    assert [cell["floor_random"] and cell["floor_random"]["value"] for cell in by_task] == [1.0, 0.2, None]
    assert by_task[2]["floor_random_reason"]


def test_the_ladder_and_skill_of_a_continuous_environment(make_run: Any) -> None:
    run = make_run(
        [3, 2],
        steps={
            "tc": [1.0, 1.0, 0.0, 0.0, 1.0],
            "tc_scaled": [0.05, 0.3, 0.7, 0.01, 9.0],  # the fourth steps into a row that no simulator takes on
            "tc_noise": [2.0, 3.0, 4.0, NAN, 0.9],  # the fifth is common noise
            "skill": [0.9, 0.8, 0.1, NAN, NAN],
        },
        results={"grade": "scaled:0.5"},
    )
    (cell,) = build_report([run])["cells"]
    assert {bar: share["value"] for bar, share in cell["ladder"].items()} == {
        "0.1": 0.4, "0.25": 0.4, "0.5": 0.6, "1": 0.8,
    }  # fmt: skip
    assert cell["skill_median"]["value"] == pytest.approx(0.8)
    assert cell["skill_median"]["coverage"] == 0.6
    assert cell["skill_median"]["low_all"] is None


def test_swapped_texts_are_counted(make_run: Any) -> None:
    run = make_run([1] * 3, rollouts={"task": ["jump", "run", ""], "task_released": ["run", "run", "run"]})
    assert build_report([run])["cells"][0]["predicates_differ"]["texts"] == 1


def test_shards_of_one_input_give_the_cell_of_the_whole(make_run: Any) -> None:
    columns = {"gc_imagined": [1.0, 0.0, 1.0], "gc_replayed": [1.0, 0.0, 0.0], "cluster": [5, 6, 5]}
    tc = [1.0, 0.0, 1.0, 1.0, NAN, 1.0]
    floors = {"t": {"noop": [1, 10], "random": [2, 10], "horizon": 9}}
    extra = {
        "floors": floors,
        "control": control(task=["t"], gc_imagined=[1], gc_replayed=[1]),
        "inputs": [{"path": "a.npy", "sha256": "1"}],
    }
    whole = make_run([2, 1, 3], rollouts=columns, steps={"tc": tc}, results=extra, name="whole")
    first = make_run(
        [2, 1], rollouts={k: v[:2] for k, v in columns.items()}, steps={"tc": tc[:3]}, results=extra, name="first"
    )
    second = make_run(
        [3],
        rollouts={k: v[2:] for k, v in columns.items()} | {"source_rollout": [2]},
        steps={"tc": tc[3:]},
        results=extra,
        name="second",
    )
    assert build_report([first, second])["cells"] == build_report([whole])["cells"]
    with pytest.raises(UsageError, match=r"twice"):
        build_report([whole, first])


@pytest.mark.parametrize(
    ("name", "value"),
    [("definitions", 2), ("grade", "strict"), ("predicates", "released"), ("calibration", {"sha256": "abc"})],
)
def test_runs_of_different_law_are_refused_or_kept_apart(make_run: Any, name: str, value: Any) -> None:
    one = make_run([1], name="one", steps={"tc": 1.0})
    two = make_run([1], name="two", steps={"tc": 0.0}, results={name: value})
    with pytest.raises(UsageError, match=rf"{name}.*--mixed"):
        build_report([one, two])
    cells = build_report([one, two], mixed=True)["cells"]
    assert [cell["transition_correctness"]["value"] for cell in cells] == [1.0, 0.0]


def test_runs_of_two_environments_may_have_two_grades(make_run: Any) -> None:
    one = make_run([1], name="one")
    two = make_run([1], rollouts={"env": "other"}, results={"env": "other", "grade": "scaled:0.5"}, name="two")
    assert [cell["grade"] for cell in build_report([one, two])["cells"]] == ["scaled:0.5", "exact"]


def test_findings_are_said_once_and_referees_add_up(make_run: Any) -> None:
    results = {"findings": ["2 decimals", "7 duplicates"], "referee": {"checked": 10, "agreed": 10}}
    runs = [make_run([1], rollouts={"source": name}, name=name, results=results) for name in ("one", "two")]
    report = build_report(runs)
    assert report["findings"] == ["2 decimals", "7 duplicates"]
    assert report["referee"] == {"checked": 20, "agreed": 20}


def test_tables_that_do_not_belong_together_are_refused(make_run: Any) -> None:
    one, two = make_run([2], name="one"), make_run([1], name="two")
    (one.path / "transitions.parquet").write_bytes((two.path / "transitions.parquet").read_bytes())
    with pytest.raises(DataError, match="1 rows"):
        build_report([one])


def test_no_run_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no run"):
        build_report([])


def test_a_failed_block_is_no_reason_for_a_missing_verdict_of_another_check(make_run: Any) -> None:
    steps = {"tc": [0.0, NAN, NAN], "tc_code": ["agent", "illegal_start", ""], "dl": [NAN] * 3}
    (cell,) = build_report([make_run([3], steps=steps)])["cells"]
    assert cell["unverifiable"]["reward_consistency"] == {"illegal_start": 1, "no_reward": 2}
    assert cell["unverifiable"]["dynamics_legality"] == {"illegal_start": 1, "not_verifiable": 2}
    assert cell["unverifiable"]["transition_correctness"] == {"illegal_start": 1, "no_reason": 1}


def test_the_same_file_twice_in_one_run_is_left_to_the_scorer(make_run: Any) -> None:
    run = make_run([1, 1], rollouts={"source": ["a.npy", "b.npy"], "source_rollout": 0}, results={
        "inputs": [{"path": "a.npy", "sha256": "1"}, {"path": "b.npy", "sha256": "1"}]
    })  # fmt: skip
    assert build_report([run])["cells"][0]["n_rollouts"] == 2
