"""HalfCheetah as a whole: recorded data pass, labels of the reference agree, planted faults show where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from qualcheck.contract import CONTRACT, check_adapter, play
from qualcheck.contract_subject import pieces
from qualcheck.envs.halfcheetah import HalfCheetah
from qualcheck.envs.halfcheetah.dynamics import Dynamics, model_path
from qualcheck.envs.halfcheetah.record import record
from qualcheck.errors import UsageError
from qualcheck.types import Trajectory

TEXTS = {
    "jump-forward": "Jump a step forward.",
    "jump-backward": "Jump a step backward.",
    "move-forward": "Run forward.",
    "rep-move-backward": "Race back.",
    "move-forward-fast": "Move forward faster.",
    "move-forward-backward": "Move forward and slow down. Move backward.",
    "move-backward-forward": "Move backward and slow down. Move forward.",
    "jump-in-place": "Jump in the original position.",
}


class Plain(HalfCheetah):
    """Called without arguments, as the contract does."""

    def __init__(self) -> None:
        super().__init__(17)


@pytest.fixture(scope="module")
def played() -> Any:
    return play(HalfCheetah(), TEXTS, 10, np.random.default_rng(3))


@pytest.mark.parametrize("law", CONTRACT)
def test_benchmark_layout_keeps_the_law(law: str, played: Any) -> None:
    assert check_adapter(HalfCheetah(), played, rng=np.random.default_rng(5), laws=[law]) == []


@pytest.mark.parametrize("law", CONTRACT)
def test_plain_layout_keeps_the_law(law: str, played: Any, plain: Any) -> None:
    assert check_adapter(Plain(), plain(played), rng=np.random.default_rng(5), laws=[law]) == []


@pytest.mark.parametrize("law", CONTRACT)
def test_law_holds_on_rollouts_of_experts(law: str) -> None:
    rollouts = record("move-backward", 6, np.random.default_rng(2))
    assert check_adapter(HalfCheetah(), rollouts, rng=np.random.default_rng(5), laws=[law]) == []


def test_layout_is_found_from_the_number_of_columns() -> None:
    assert [spec.obs_size for spec in HalfCheetah().layouts()] == [18, 17]
    assert [HalfCheetah().with_layout(size).spec.obs_size for size in (17, 18)] == [17, 18]
    with pytest.raises(UsageError, match="17 or 18"):
        HalfCheetah(19)


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_one_step_errors_of_recorded_data_are_those_of_float32(level: str, golden: Any) -> None:
    _, rollouts = golden[level]
    replay = HalfCheetah().replay(rollouts)
    assert not replay.code.any()
    assert replay.simulator_steps == 5 * rollouts.n_transitions
    error = np.abs(replay.candidates[0] - rollouts.end_obs)
    assert error[:, 0].max() < 1e-5
    assert error[:, 1:9].max() < 1e-5
    assert error[:, 9:].max() < 1e-3
    assert np.quantile(error[:, 9:], 0.99) < 1e-5


def test_one_step_errors_of_float64_data_are_rounding(expert: Any) -> None:
    replay = HalfCheetah(17).replay(expert)
    error = np.abs(replay.candidates[0] - expert.end_obs)
    assert error[:, :8].max() < 1e-9
    assert error[:, 8:].max() < 1e-7


@pytest.mark.parametrize("columns", [18, 17])
def test_referee_equals_replay(columns: int, golden: Any, plain: Any) -> None:
    rollouts = golden["easy"][1] if columns == 18 else plain(golden["easy"][1])
    adapter = HalfCheetah(columns)
    at = np.random.default_rng(0).permutation(rollouts.n_transitions)[:300]
    end, code = adapter.referee(rollouts.start_obs[at], rollouts.action[at])
    assert not code.any()
    np.testing.assert_allclose(adapter.replay(rollouts).candidates[0][at], end, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["imag_mujoco_easy", "imag_mujoco_rephrase", "imag_mujoco_rephrase_round2"])
def test_errors_of_imagined_rollouts_equal_the_labels(name: str, shared_data: Path, reader: Any, placer: Any) -> None:
    _, rollouts = reader(shared_data / "imagined" / f"{name}.npy")
    adapter = HalfCheetah()
    with np.load(shared_data / "imagined" / f"{name}_labels.npz") as labels:
        label = {key: labels[key] for key in ("err", "err_scaled", "real_std", "goal_imagined", "goal_imagined_step")}
    replay = adapter.replay(rollouts)
    known = replay.code == 0
    assert known.all()
    gap = np.abs(replay.candidates[0] - rollouts.end_obs)
    wanted = label["err"][rollouts.rollout, rollouts.step]
    np.testing.assert_allclose(gap.max(axis=1), wanted, rtol=1e-6)
    scaled = label["err_scaled"][rollouts.rollout, rollouts.step]
    np.testing.assert_allclose((gap / label["real_std"]).max(axis=1), scaled, rtol=1e-6)
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, adapter.takeable(rollouts.obs) == 0)
    goal = adapter.goals(rows, *placer(rollouts))
    for i in range(rollouts.n_rollouts):
        hits = np.flatnonzero(goal.released[rows.offsets[i] : rows.offsets[i + 1]])
        assert bool(len(hits)) == label["goal_imagined"][i]
        if len(hits):
            assert hits[0] == label["goal_imagined_step"][i]


def test_faults_show_at_their_step_with_the_labelled_error(shared_data: Path, reader: Any) -> None:
    data, rollouts = reader(shared_data / "mutated" / "mujoco_mutated.npy")
    replay = HalfCheetah().replay(rollouts)
    with np.load(shared_data / "mutated" / "mujoco_mutated_labels.npz", allow_pickle=True) as labels:
        err = labels["err"]
    gap = np.abs(replay.candidates[0] - rollouts.end_obs).max(axis=1)
    seen = 0
    for i, (fault, step) in enumerate(zip(data["fault"], data["fault_step"], strict=True)):
        mine = slice(rollouts.offsets[i], rollouts.offsets[i + 1])
        if fault == "none":
            assert gap[mine].max() < 1e-3
        elif fault == "nan_row":
            assert not np.isfinite(rollouts.end_obs[mine][step]).all()
            assert replay.code[mine][step] == 0
        else:
            assert gap[mine][step] > 0.05, fault
            assert gap[mine][step] == pytest.approx(err[i, step], rel=1e-5)
            seen += 1
    assert seen > 80


def test_unusable_rows_and_actions_are_coded_and_leave_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maker: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    rng, adapter = np.random.default_rng(1), HalfCheetah()
    names = adapter.spec.codes
    rows = np.zeros((8, 18))
    rows[1, 4], rows[2, 10], rows[3, 12] = np.nan, np.inf, 1e9
    rows[4, 1], rows[5, 0] = -3.0, 6.0
    action = np.zeros((8, 6))
    action[6, 2], action[7] = np.nan, 1e300
    lone = maker([(rows[i : i + 1].repeat(2, axis=0), action[i : i + 1]) for i in range(8)])
    code = [names[k] for k in adapter.replay(lone).code]
    assert code == ["", *["illegal_start"] * 5, "bad_action", ""]
    assert [names[k] for k in adapter.takeable(rows)] == [
        "", "non_finite", "non_finite", "out_of_range", "out_of_range", "out_of_range", "", "",
    ]  # fmt: skip
    low, high = -np.ones(18), np.ones(18)
    low[1], high[1], low[3:9], high[3:9] = -1.5, 10, -np.pi, np.pi
    low[9:], high[9:] = -50, 50
    low[11:], high[11:] = -250, 250
    wild = rng.uniform(low, high, (3000, 2, 18))
    hostile = maker([(row, rng.uniform(-1, 1, (1, 6))) for row in wild])
    replay = adapter.replay(hostile)
    stopped = replay.code == names.index("simulator_warning")
    assert 0 < stopped.sum() < 300
    assert np.isfinite(replay.candidates[0][~stopped]).all()
    assert np.isnan(replay.candidates[0][stopped]).all()
    played = adapter.open_loop(hostile)
    assert (played.code == replay.code).all()
    assert (played.trajectory.ok[1::2] == ~stopped).all()
    adapter.referee(wild[:50, 0], rng.uniform(-1, 1, (50, 6)))
    assert list(tmp_path.iterdir()) == []


def test_warning_handler_of_the_user_is_given_back(maker: Any) -> None:
    heard: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(heard.append)
    try:
        fast = np.zeros((2, 18))
        fast[:, 1], fast[:, 9:] = -1.5, 50
        HalfCheetah().replay(maker([(fast, np.zeros((1, 6)))]))
        model = mujoco.MjModel.from_xml_path(model_path())
        data = mujoco.MjData(model)
        data.qvel[0] = 1e12
        mujoco.mj_step(model, data)
    finally:
        mujoco.set_mju_user_warning(before)
    assert len(heard) == 1


def test_results_are_equal_to_the_bit_for_any_batch_order_and_number_of_threads(golden: Any) -> None:
    rollouts = golden["easy"][1]
    few = pieces(rollouts, np.random.default_rng(0).permutation(rollouts.n_rollouts)[:20])
    adapters = [HalfCheetah(), HalfCheetah()]
    adapters[0]._dynamics, adapters[1]._dynamics = Dynamics(1), Dynamics(3)
    one, three = (adapter.replay(few).candidates for adapter in adapters)
    assert np.array_equal(one, three)
    played = [adapter.open_loop(few).trajectory.obs for adapter in adapters]
    assert np.array_equal(*played)
    last = pieces(few, [19])
    assert np.array_equal(adapters[1].replay(last).candidates[0], one[0][few.offsets[19] :])
    assert np.array_equal(adapters[0].open_loop(last).trajectory.obs, played[0][few.offsets[19] + 19 :])


def test_open_loop_of_real_rollouts_stays_close_for_twenty_steps_and_keeps_row_0(golden: Any) -> None:
    _, rollouts = golden["hard"]
    played = HalfCheetah().open_loop(rollouts)
    assert not played.code.any()
    assert played.trajectory.ok.all()
    row = np.arange(len(rollouts.obs)) - np.repeat(rollouts.row_offsets[:-1], np.diff(rollouts.row_offsets))
    error = np.abs(played.trajectory.obs - rollouts.obs).max(axis=1)
    assert error[row == 0].max() == 0
    assert np.quantile(error[row <= 10], 0.99) < 1e-3
    assert np.median(error[row == 20]) < 1e-4
    assert error[row == 190].max() > 0.1, "chaos is expected"


def test_open_loop_follows_a_perturbed_start(golden: Any) -> None:
    _, rollouts = golden["easy"]
    moved = replace(rollouts, obs=rollouts.obs.astype(np.float64))
    moved.obs[moved.first_row, 3] += 1e-3
    base, other = (HalfCheetah().open_loop(one).trajectory for one in (rollouts, moved))
    shift = (other.obs - base.obs)[base.offsets[:-1]]
    np.testing.assert_allclose(shift, np.tile(np.eye(18)[3] * 1e-3, (len(shift), 1)), atol=1e-12)
    assert np.abs(other.obs - base.obs)[base.offsets[:-1] + 1].max() > 1e-4


def test_bad_action_ends_an_open_loop_replay_there(maker: Any) -> None:
    action = np.zeros((4, 6))
    action[2, 0] = np.inf
    adapter = HalfCheetah()
    played = adapter.open_loop(maker([(np.zeros((5, 18)), action), (np.zeros((5, 18)), np.zeros((4, 6)))]))
    assert [adapter.spec.codes[k] for k in played.code] == ["bad_action", ""]
    assert played.trajectory.ok.tolist() == [True, True, True, False, False, *[True] * 5]


def test_plain_layout_judges_goals_and_rewards_by_simulated_displacements(golden: Any, plain: Any, placer: Any) -> None:
    _, rollouts = golden["easy"]
    short, adapter = plain(rollouts), HalfCheetah(17)
    assert adapter.findings
    assert not HalfCheetah().findings
    placements, which = placer(rollouts)
    rows = Trajectory(short.obs, short.row_offsets, adapter.takeable(short.obs) == 0)
    goal = adapter.goals(adapter.annotate(rows, short), placements, which)
    whole = HalfCheetah().goals(Trajectory(rollouts.obs, rollouts.row_offsets, rows.ok), placements, which)
    assert (goal.released == whole.released).mean() > 0.999
    np.testing.assert_allclose(adapter.reward(short, placements, which)["released"], rollouts.reward, atol=1e-4)
    played = [HalfCheetah(17).open_loop(short), HalfCheetah().open_loop(rollouts)]
    assert np.array_equal(played[0].trajectory.obs, played[1].trajectory.obs[:, 1:])
    replayed = [adapter.goals(one.trajectory, placements, which).released for one in played]
    assert np.array_equal(*replayed)


def test_goals_of_cuts_are_unknown(golden: Any, placer: Any) -> None:
    _, rollouts = golden["easy"]
    later = replace(rollouts, source_step=np.full(rollouts.n_rollouts, 3, np.int32))
    adapter = HalfCheetah()
    rows = adapter.annotate(Trajectory(later.obs, later.row_offsets, adapter.takeable(later.obs) == 0), later)
    for each in (rows, adapter.open_loop(later).trajectory):
        goal = adapter.goals(each, *placer(rollouts))
        assert not (goal.intended | goal.released).any()
        assert np.isnan(goal.share).all()


def test_steps_of_all_replays_are_counted(golden: Any) -> None:
    _, rollouts = golden["hard"]
    adapter = HalfCheetah()
    assert adapter.steps_executed == 0
    adapter.replay(rollouts)
    assert adapter.steps_executed == 5 * rollouts.n_transitions
    adapter.open_loop(rollouts)
    assert adapter.steps_executed >= 10 * rollouts.n_transitions
