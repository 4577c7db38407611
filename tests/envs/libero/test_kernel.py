"""The compiled simulator against robosuite's own step, and the sequential filter on recorded rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
import pytest

from qualcheck.envs.libero import controller, kernel, model
from qualcheck.envs.libero.columns import BODY_FIRST
from qualcheck.envs.libero.layout import (
    GOAL_TURN,
    GRIPPER,
    HAND_BODY,
    HAND_SITE,
    QPOS_SIZE,
    ROW_OF_QPOS,
    VELOCITY,
)

pytest.importorskip("robosuite", reason="needs the extra libero")
pytest.importorskip("numba", reason="needs the extra libero")

LEVELS = ("real", "rephrase", "easy", "hard")
JOINTS, HAND, FINGERS = slice(0, 7), slice(7, 10), slice(14, 16)


class Recorded(NamedTuple):
    start: Any  # (M, 44)
    end: Any  # (M, 44)
    action: Any  # (M, 7)
    offsets: Any  # (N+1,)
    state: Any  # (M, 71) full states
    hidden: Any  # (M, 43) of these
    task: Any  # (M,) first column of the task object


@pytest.fixture(scope="module")
def recorded(shared_data: Path) -> Recorded:
    parts: list[list[Any]] = [[] for _ in range(5)]
    length: list[int] = []
    task: list[int] = []
    for level in LEVELS:
        data: dict[str, Any] = np.load(shared_data / "golden" / f"libero_{level}.npy", allow_pickle=True).item()
        keep = data["masks"][..., 0] > 0
        for part, name in zip(parts, ("observations", "next_observations", "actions", "states"), strict=False):
            part.append(data[name][keep])
        parts[4].append(np.concatenate([data["states"], data["gripper_action"], data["goal_ori"]], axis=2)[keep])
        for rows, name in zip(keep.sum(axis=1), data["task_str"], strict=True):
            length.append(int(rows))
            found = [(name.find(body), first) for body, first in BODY_FIRST.items() if body in name]
            task += [min(found)[1] if found else BODY_FIRST["alphabet_soup"]] * int(rows)
    start, end, action, state, known = (np.concatenate(part) for part in parts)
    hidden = np.concatenate([known[:, 38:71], known[:, 72:73], known[:, 73:]], axis=1)
    return Recorded(start, end, action, np.cumsum([0, *length]), state, hidden, np.array(task))


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kernel.Simulator]:
    simulator = kernel.Simulator(model.load(tmp_path_factory.mktemp("cache")), threads=2)
    yield simulator
    simulator.close()


@pytest.fixture(scope="module")
def filtered(recorded: Recorded, simulator: kernel.Simulator) -> kernel.Played:
    return simulator.play(recorded.start, recorded.action, recorded.offsets)


@pytest.fixture(scope="module")
def benchmark() -> Any:
    env = model.benchmark_env()
    env.reset()
    return env


def rows_of(states: Any) -> Any:
    """Rows that hold the positions of full states, (M, 71) -> (M, 44)."""
    rows = np.zeros((len(states), 44))
    rows[:, ROW_OF_QPOS] = states[:, 1 : 1 + QPOS_SIZE]
    return rows


def task_error(recorded: Recorded, end: Any) -> Any:
    columns = recorded.task[:, None] + np.arange(3)
    return np.abs(np.take_along_axis(end - recorded.end, columns, axis=1)).max(axis=1)


def piece(recorded: Recorded, rollouts: list[int]) -> tuple[Any, Any, Any]:
    parts = [slice(recorded.offsets[i], recorded.offsets[i + 1]) for i in rollouts]
    offsets = np.cumsum([0, *(part.stop - part.start for part in parts)])
    return (*(np.concatenate([rows[part] for part in parts]) for rows in (recorded.start, recorded.action)), offsets)


def read_row(data: Any, of: Any) -> Any:
    """A row as the benchmark's sensors read it off the simulator now."""
    row = np.empty(44)
    row[JOINTS], row[FINGERS] = data.qpos[:7], data.qpos[7:9]
    row[HAND], row[10:14] = data.site_xpos[of.site(HAND_SITE).id], data.xquat[of.body(HAND_BODY).id][[1, 2, 3, 0]]
    for name, first in BODY_FIRST.items():
        body = data.body(f"{name}_1_main")
        row[first : first + 3], row[first + 3 : first + 7] = body.xpos, body.xquat[[1, 2, 3, 0]]
    return row


@pytest.mark.parametrize("n", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_step_and_its_torque_are_those_of_robosuite(
    n: int, recorded: Recorded, simulator: kernel.Simulator, benchmark: Any
) -> None:
    env, robot = benchmark.env, benchmark.env.robots[0]
    data, of = env.sim.data._data, env.sim.model._model
    rng = np.random.default_rng(4)
    which = rng.choice(len(recorded.state), n, replace=n > len(recorded.state))
    action = recorded.action[which].astype(np.float64)
    action[1::3] = rng.uniform(-1.3, 1.3, (len(action[1::3]), 7))  # out of range too
    action[2::3, 3:6] = 0.0  # the earlier goal of the turn stays
    ends, torque_error, condition = np.empty((n, 44)), np.zeros(n), np.zeros(n)
    own = mujoco.MjData(simulator.model)
    for i, at in enumerate(which):
        state, hidden = recorded.state[at], recorded.hidden[at]
        for trial in ("torque", "step"):
            env.sim.set_state_from_flattened(state)
            data.qacc_warmstart[:] = 0
            robot.controller.goal_ori = hidden[GOAL_TURN].reshape(3, 3).copy()
            robot.gripper.current_action = np.array([-1.0, 1.0]) * hidden[GRIPPER]
            robot.controller.new_update = True
            if trial == "step":
                benchmark.step(action[i])
                continue
            env.sim.forward()
            robot.controller.set_goal(action[i, :6])
            expected = np.clip(robot.controller.run_controller(), *robot.torque_limits)
            own.qpos[:], own.qvel[:] = state[1:38], state[38:]
            mujoco.mj_step1(simulator.model, own)
            arm = controller.arm_state(simulator.model, own)
            goal, turn = controller.goals(action[i], arm, hidden[GOAL_TURN].reshape(3, 3))
            np.testing.assert_allclose(turn, robot.controller.goal_ori, atol=3e-7)
            condition[i] = np.linalg.cond(arm.jacobian @ np.linalg.solve(arm.mass, arm.jacobian.T))
            torque_error[i] = np.abs(controller.torque(arm, goal, robot.controller.goal_ori) - expected).max()
        ends[i] = read_row(data, of)
    played = simulator.play(rows_of(recorded.state[which]), action, np.arange(n + 1), hidden=recorded.hidden[which])
    # Nm; robosuite's pseudo-inverses lose more than the twin near a singular arm (1e-9 at a condition of 8e5)
    assert (torque_error < np.maximum(1e-9, 1e-14 * condition)).all()
    assert np.median(condition) < 1e4
    error = np.abs(played.end - ends)
    joints = error[:, JOINTS].max(axis=1)
    objects = np.max([error[:, first : first + 3] for first in BODY_FIRST.values()], axis=(0, 2))
    # the contact solver stops early and robosuite starts it from other values: what is above 1e-6 rad is its tolerance
    assert np.quantile(joints, 0.99) < 1e-6
    assert joints.max() < 5e-5
    assert np.quantile(objects, 0.999) < 1e-4
    assert objects.max() < 5e-4
    assert error[:, 7:14].max() < 5e-5
    assert played.sound.all()


def test_recorded_rows_are_followed_from_the_rows_alone(recorded: Recorded, filtered: kernel.Played) -> None:
    error = np.abs(filtered.end - recorded.end)
    hand = error[:, HAND].max(axis=1)
    assert filtered.sound.all()
    assert np.median(hand) < 2e-4
    assert np.quantile(hand, 0.95) < 6e-4
    assert np.quantile(hand, 0.99) < 2e-3
    assert np.quantile(error[:, JOINTS].max(axis=1), 0.95) < 3e-3
    assert np.quantile(task_error(recorded, filtered.end), 0.99) < 6e-3
    # the gripper's command is the integral of the actions, the first goal of the turn that of the reset
    np.testing.assert_allclose(filtered.hidden[:, GRIPPER], recorded.hidden[:, GRIPPER], atol=1e-12)
    first = recorded.offsets[:-1]
    np.testing.assert_allclose(filtered.hidden[first, GOAL_TURN], recorded.hidden[first, GOAL_TURN], atol=1e-12)


def test_recorded_full_states_lead_to_the_recorded_rows(recorded: Recorded, simulator: kernel.Simulator) -> None:
    some = Recorded(*(part[::3] for part in recorded[:3]), recorded.offsets, *(part[::3] for part in recorded[4:]))
    offsets = np.arange(len(some.start) + 1)
    rows = rows_of(some.state)
    played = simulator.play(rows, some.action, offsets, hidden=some.hidden, sample_after=24)
    error = np.abs(played.end - some.end)
    assert np.quantile(error[:, HAND].max(axis=1), 0.95) < 2e-5
    assert np.quantile(error[:, JOINTS].max(axis=1), 0.95) < 3e-5
    assert np.quantile(task_error(some, played.end), 0.95) < 4e-5


def test_a_negated_action_is_seen_in_the_hand(
    recorded: Recorded, simulator: kernel.Simulator, filtered: kernel.Played
) -> None:
    start, action, offsets = piece(recorded, [0, 1, 2])
    at = int(np.argmax(np.abs(action[: offsets[1] - 1, :3]).max(axis=1)))
    wrong = action.copy()
    wrong[at, :3] *= -1
    played = simulator.play(start, wrong, offsets)
    moved = np.abs(played.end - filtered.end[: len(start)]).max(axis=1)
    assert not moved[:at].any()
    assert np.abs(played.end[at, HAND] - recorded.end[at, HAND]).max() > 5e-3
    assert not moved[offsets[1] :].any()  # other rollouts never notice


def test_results_depend_on_nothing_but_the_rollout(
    recorded: Recorded, simulator: kernel.Simulator, filtered: kernel.Played
) -> None:
    alone = kernel.Simulator(simulator.model, threads=1)
    for _ in range(2):
        start, action, offsets = piece(recorded, [7, 3])
        played = alone.play(start, action, offsets)
        for at, rollout in enumerate((7, 3)):
            part = slice(recorded.offsets[rollout], recorded.offsets[rollout + 1])
            assert np.array_equal(played.end[offsets[at] : offsets[at + 1]], filtered.end[part])
            assert np.array_equal(played.hidden[offsets[at] : offsets[at + 1]], filtered.hidden[part])
    assert alone.steps == 2 * len(start)
    alone.close()


def test_a_cut_with_its_hidden_state_replays_as_the_whole_did(
    recorded: Recorded, simulator: kernel.Simulator, filtered: kernel.Played
) -> None:
    start, action, offsets = piece(recorded, [5])
    first = recorded.offsets[5]
    cut = len(start) // 2
    rest = (start[cut:], action[cut:], np.array([0, len(start) - cut]))
    played = simulator.play(*rest, hidden=filtered.hidden[first + cut][None])
    assert np.array_equal(played.end, filtered.end[first + cut : first + len(start)])
    assert np.array_equal(played.last[0], simulator.play(start, action, offsets).last[0])
    unknown = simulator.play(*rest, hidden=np.full((1, 43), np.nan))
    assert np.array_equal(unknown.hidden[0], simulator.rest)
    assert not np.array_equal(unknown.end, played.end)


def test_following_the_first_row_alone_is_the_open_loop(
    recorded: Recorded, simulator: kernel.Simulator, filtered: kernel.Played
) -> None:
    start, action, offsets = piece(recorded, [0])
    follow = np.arange(len(start)) == 0
    played = simulator.play(start, action, offsets, follow=follow)
    late = start.copy()
    late[1:] = np.nan  # the later rows are never looked at
    assert np.array_equal(played.end, simulator.play(late, action, offsets, follow=follow).end)
    assert np.array_equal(played.end[0], filtered.end[0])
    assert np.abs(played.end[20, HAND] - recorded.end[20, HAND]).max() < 5e-3


def test_an_arm_in_the_reset_pose_stays_there_when_nothing_is_asked(simulator: kernel.Simulator) -> None:
    row = np.zeros((1, 44))
    row[0, JOINTS] = [0.0, -0.161037389, 0.0, -2.44459747, 0.0, 2.22675220, np.pi / 4]
    row[0, FINGERS] = [0.02, -0.02]
    for x, first in enumerate(BODY_FIRST.values()):  # well apart and on the floor or a little above
        row[0, first : first + 7] = [0.5 + 0.4 * x, 0.0, 0.1, 0, 0, 0, 1]
    played = simulator.play(row, np.zeros((1, 7)), np.array([0, 1]))
    # hand of the benchmark's reset: m, and turned to look down
    np.testing.assert_allclose(played.end[0, HAND], [-0.148465, 0.0, 0.261279], atol=2e-4)
    np.testing.assert_allclose(np.abs(played.end[0, 10:14]), [0.999597, 0.000246, 0.0284, 0.0], atol=1e-4)
    np.testing.assert_allclose(played.end[0, FINGERS], [0.02, -0.02], atol=1e-4)
    # a free fall of 24 substeps of 2 ms, since the pose is one substep older; air and damping take up to 1 %
    fallen = 9.81 * 0.002**2 * 24 * 25 / 2
    assert 0.1 - played.end[0, BODY_FIRST["cream_cheese"] + 2] == pytest.approx(fallen, rel=1e-2)
    assert np.array_equal(played.hidden[0, VELOCITY], np.zeros(33))


def test_bad_rows_and_actions_are_nan_for_their_step_alone(
    recorded: Recorded, simulator: kernel.Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start, action, offsets = piece(recorded, [0, 1])
    start, action = start.astype(np.float64), action.astype(np.float64)
    good = simulator.play(start, action, offsets)
    start[:2] = np.nan  # nothing to simulate before row 2
    action[5, 2] = np.inf
    start[8, 16] = 1e300  # MuJoCo gives up on this one and starts again
    start[10, 3] = np.nan  # goes on from where it is
    played = simulator.play(start, action, offsets)
    assert np.flatnonzero(~played.sound).tolist() == [0, 1, 5, 8]
    assert np.flatnonzero(np.isnan(played.end).any(axis=1)).tolist() == [0, 1, 5, 8]
    assert np.array_equal(played.end[offsets[1] :], good.end[offsets[1] :])
    assert played.hidden[2, GRIPPER] == pytest.approx(good.hidden[2, GRIPPER])
    # after MuJoCo has given up nothing is known until a row is taken on
    follow = np.arange(len(start)) <= 8
    lost = simulator.play(start, action, offsets, follow=follow)
    assert not lost.sound[8 : offsets[1]].any()
    assert not list(tmp_path.iterdir())  # no MUJOCO_LOG.TXT


def test_no_rollouts_and_empty_rollouts_are_played(simulator: kernel.Simulator) -> None:
    for offsets in ([0], [0, 0, 0]):
        played = simulator.play(np.empty((0, 44)), np.empty((0, 7)), np.array(offsets))
        assert played.end.shape == (0, 44)
        assert played.last.shape == (len(offsets) - 1, 43)
