"""Rollouts that small models imagined: every verdict equals the label of the reference simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

LEVELS = ("rephrase", "easy")


@pytest.fixture(params=LEVELS)
def imagined(request: pytest.FixtureRequest, scored: Any, shared_data: Path) -> tuple[Any, dict[str, Any], Any]:
    run, content = scored(f"imagined/imag_babyai_{request.param}.npy")
    labels = np.load(shared_data / f"imagined/imag_babyai_{request.param}_labels.npz")
    return run, content, labels


def test_the_filler_step_of_every_rollout_has_no_row(imagined: Any) -> None:
    run, content, _ = imagined
    length = content["masks"][..., 0].sum(1).astype(int) - 1
    assert np.array_equal(run.r["length"], length)
    assert np.array_equal(np.bincount(run.t["rollout"], minlength=len(length)), length)
    assert not any("final_row_simulated" in flags for flags in run.r["flags"])


def test_every_transition_verdict_equals_the_label(imagined: Any) -> None:
    run, _, labels = imagined
    t = run.t
    correct = labels["correct"][t["rollout"], t["step"]].astype(float)
    correct[correct == -1] = np.nan
    assert np.array_equal(t["tc"], correct, equal_nan=True)
    assert np.array_equal(t["tc_error"] > 0, correct == 0)
    assert (t["tc_code"][t["tc"] == 1] == "").all()
    assert (t["tc_code"][t["tc"] != 1] != "").all()
    assert set(t["tc_code"][np.isnan(t["tc"])]) <= {"illegal_start"}


def test_row_rules_fire_exactly_on_the_illegal_end_rows(imagined: Any) -> None:
    run, _, labels = imagined
    t = run.t
    legal_end = labels["legal_state"][t["rollout"], t["step"] + 1]
    assert (legal_end != -1).all()
    assert np.array_equal([rule.startswith("row.") for rule in t["dl_rule"]], legal_end == 0)
    assert all(rule.split(".")[0] in ("", "row", "context", "step") for rule in t["dl_rule"])
    assert np.array_equal(t["dl"] == 0, t["dl_rule"] != "")


def test_changed_constants_break_a_context_rule(imagined: Any) -> None:
    run, _, labels = imagined
    t = run.t
    changed = (labels["same_constants"][t["rollout"], t["step"] + 1] == 0) & (
        labels["legal_state"][t["rollout"], t["step"] + 1] == 1
    )
    assert (t["dl"][changed] == 0).all()
    assert all(rule.startswith("context.") for rule in t["dl_rule"][changed])


def test_imagined_and_replayed_goals_equal_the_labels_under_both_predicate_sets(imagined: Any) -> None:
    run, _, labels = imagined
    assert np.array_equal(run.r["gc_imagined_released"], labels["goal_imagined"])
    assert np.array_equal(run.r["gc_replayed_released"], labels["goal_replayed"])
    assert np.array_equal(run.r["gc_imagined"], labels["goal_imagined_intended"])
    assert np.array_equal(run.r["gc_replayed"], labels["goal_replayed_intended"])
    assert np.array_equal(run.r["trivial_released"], labels["goal_row0"])


def test_the_first_fault_is_the_first_step_with_a_failed_verdict(imagined: Any) -> None:
    run, _, _ = imagined
    t = run.t
    expected = np.full(len(run.r["rollout"]), -1)
    wrong = (t["tc"] == 0) | (t["dl"] == 0)
    for rollout, step in zip(t["rollout"][wrong][::-1], t["step"][wrong][::-1], strict=True):
        expected[rollout] = step
    assert np.array_equal(run.r["first_fault_step"], expected)


def test_rollout_shares_are_those_of_their_verified_transitions(imagined: Any) -> None:
    run, _, _ = imagined
    t, r = run.t, run.r
    for verdict, share, coverage in (("tc", "correctness", "coverage_tc"), ("dl", "legality", "coverage_dl")):
        known = ~np.isnan(t[verdict])
        n = np.bincount(t["rollout"][known], minlength=len(r["rollout"]))
        ones = np.bincount(t["rollout"][t[verdict] == 1], minlength=len(r["rollout"]))
        with np.errstate(invalid="ignore"):
            assert np.allclose(r[share], ones / n, equal_nan=True)
            assert np.allclose(r[coverage][r["length"] > 0], (n / r["length"])[r["length"] > 0])


def test_recorded_rewards_equal_the_recomputed_ones_where_both_rows_can_be_decoded(imagined: Any) -> None:
    run, _, labels = imagined
    t = run.t
    both = (labels["steppable"][t["rollout"], t["step"]] == 1) & (labels["steppable"][t["rollout"], t["step"] + 1] == 1)
    error = t["reward_error"][both]
    assert not np.isnan(error).any()
    assert np.abs(error).max() <= 1e-5


@pytest.mark.parametrize("level", LEVELS)
def test_fabrication_and_its_control_equal_the_hand_counts(
    level: str, qualcheck: Any, shared_data: Path, tmp_path: Path
) -> None:
    real = shared_data / f"golden/babyai_{level}.npy"
    run = qualcheck.score(
        tmp_path / "run",
        shared_data / f"imagined/imag_babyai_{level}.npy",
        options=["--level", level, "--generator", "small", "--reference", real],
    )
    cells = qualcheck.report(tmp_path / "run")["cells"]
    assert len(cells) == 1
    cell = cells[0]
    assert (cell["env"], cell["level"], cell["generator"], cell["task"]) == ("babyai", level, "small", None)
    assert (cell["grade"], cell["predicates"]) == ("exact", "intended")
    labels = np.load(shared_data / f"imagined/imag_babyai_{level}_labels.npz")
    yes, replayed = labels["goal_imagined_intended"], labels["goal_replayed_intended"]
    assert cell["fabrication"]["n"] == yes.sum()
    assert cell["fabrication"]["value"] == pytest.approx((yes & ~replayed).sum() / yes.sum(), abs=1e-9)
    content = np.load(real, allow_pickle=True).item()
    control = cell["fabrication_control"]
    assert control["value"] == 0
    after = content["next_observations"]
    held = ((after[..., 12] == 0) & (after[..., 15] > 0) & (content["masks"][..., 0] == 1)).any(1)
    pick = np.array([text[0] == "open the door, then pick up any object" for text in content["instructions"]])
    assert control["n"] == np.where(pick, held, content["success"][:, 1]).sum()
    assert cell["fabrication_excess"]["value"] == pytest.approx(cell["fabrication"]["value"], abs=1e-9)
    assert cell["control"]["transition_correctness"]["value"] == 1
    assert Path(real).name in cell["control"]["source"]
    correct = labels["correct"][run.t["rollout"], run.t["step"]]
    tc = cell["transition_correctness"]
    assert tc["n"] == (correct >= 0).sum()
    assert tc["value"] == pytest.approx((correct == 1).sum() / (correct >= 0).sum(), abs=1e-9)
    assert tc["coverage"] == pytest.approx((correct >= 0).mean(), abs=1e-9)
    assert tc["low_all"] <= (correct == 1).mean() <= (correct != 0).mean() <= tc["high_all"]
    if (correct == -1).any():
        assert tc["low_all"] < tc["low"]
        assert tc["high_all"] > tc["high"]
    whole = cell["goal_consistency"]
    assert (whole["coverage"], whole["low_all"], whole["high_all"]) == (1, whole["low"], whole["high"])
    assert tc["low"] <= tc["value"] <= tc["high"]
    assert [tc["low"], tc["high"]] != [1, 1]
    for key, label in (
        ("goal_consistency", "goal_imagined_intended"),
        ("goal_consistency_released", "goal_imagined"),
        ("goal_consistency_replayed", "goal_replayed_intended"),
    ):
        assert cell[key]["value"] == pytest.approx(labels[label].mean(), abs=1e-9)
        assert cell[key]["n"] == len(yes)


def test_goal_intervals_are_clopper_pearson(qualcheck: Any, scored: Any) -> None:
    from scipy.stats import beta

    run, _ = scored("imagined/imag_babyai_easy.npy")
    gc = qualcheck.report(run.path)["cells"][0]["goal_consistency"]
    k, n = round(gc["value"] * gc["n"]), gc["n"]
    assert gc["low"] == pytest.approx(beta.ppf(0.025, k, n - k + 1), abs=1e-6)
    assert gc["high"] == pytest.approx(beta.ppf(0.975, k + 1, n - k), abs=1e-6)


def test_the_control_says_where_it_comes_from_and_the_excess_is_over_it(qualcheck: Any, scored: Any) -> None:
    run, _ = scored("imagined/imag_babyai_rephrase.npy")
    cell = qualcheck.report(run.path)["cells"][0]
    assert cell["fabrication"]["value"] > 0
    if cell["control"] is None:
        for key in ("fabrication_control", "fabrication_excess", "control"):
            assert cell[key] is None
            assert "--reference" in cell[f"{key}_reason"]
    else:
        assert "calibration" in cell["control"]["source"]
        excess = cell["fabrication"]["value"] - cell["fabrication_control"]["value"]
        assert cell["fabrication_excess"]["value"] == pytest.approx(excess, abs=1e-9)


# within 128 steps, 100 episodes each: spec/benchmark_defects.md; true at reset, 1,500 each: spec/babyai.md
RANDOM = {"goto": 0.53, "open": 0.25, "pickup": 0.23, "putnext": 0.15, "go_wall": 1, "go_center": 0.94, "open_go": 0.13}
NOOP = {"putnext": 0.10}


@pytest.mark.parametrize("level", LEVELS)
def test_floors_stand_beside_the_goals_and_are_the_measured_ones(level: str, qualcheck: Any, scored: Any) -> None:
    run, _ = scored(f"imagined/imag_babyai_{level}.npy")
    cells = qualcheck.report(run.path, options=["--by", "task"])["cells"]
    assert len(cells) == 4
    for cell in cells:
        name = cell["task"]
        assert name in {*RANDOM, "open_pick"}
        assert cell["floor_noop"]["value"] == pytest.approx(NOOP.get(name, 0), abs=0.04), name
        if name in RANDOM:
            # measured within the 39 steps of these data, against 128 in the specification
            assert 0 < cell["floor_random"]["value"] <= RANDOM[name] + 0.13, name
            assert run.manifest["results"]["floors"][name]["horizon"] == 39
