"""Replays of recorded episodes against the rows that the benchmark's own simulator wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from qualcheck.envs.metaworld import kernel as simulator
from qualcheck.envs.metaworld.kernel import Episode, Kernel, Played
from qualcheck.envs.metaworld.layout import (
    BAD_ACTION,
    ILLEGAL_START,
    LOCK_TASKS,
    TASKS,
    base_task,
    block,
    position,
    simulated_columns,
)
from qualcheck.envs.metaworld.scene import has_modified_door, scene_key


def read(shared_data: Path, name: str, fault: str = "") -> list[Episode]:
    data: dict[str, Any] = np.load(shared_data / name, allow_pickle=True).item()
    out = []
    for i, task in enumerate(data.get("task_str", data.get("env_names"))):
        length = int(data["masks"][i].sum())
        rows = np.concatenate([data["observations"][i, :length], data["next_observations"][i, length - 1 : length]])
        if not fault or data["fault"][i] == fault:
            out.append(Episode(base_task(str(task)), rows, data["actions"][i, :length]))
    return out


def first_of_each(episodes: list[Episode]) -> list[Episode]:
    return [next(each for each in episodes if each.task == task) for task in sorted({each.task for each in episodes})]


def hand_error(episode: Episode, played: Played) -> Any:
    return np.abs(played.obs - episode.rows)[1:, :3].max(axis=1)  # (T,) m


@pytest.fixture(scope="module")
def kernel() -> Any:
    made = Kernel("2.3", threads=2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def episodes(shared_data: Path) -> list[Episode]:
    """One episode of each of the 22 tasks."""
    levels = ("real", "easy", "hard")
    return [each for level in levels for each in first_of_each(read(shared_data, f"golden/metaworld_{level}.npy"))]


def test_open_loop_replays_follow_the_recorded_hand_through_whole_episodes(
    episodes: list[Episode], kernel: Kernel
) -> None:
    played = kernel.play(episodes, filtered=False)
    worst = {each.task: hand_error(each, done).max() for each, done in zip(episodes, played, strict=True)}
    assert len(worst) == len(TASKS)
    far = {task for task, error in worst.items() if error > 2e-3}
    assert far <= {"door-close", *LOCK_TASKS}, worst
    assert np.median(list(worst.values())) < 1e-4


def test_the_filter_predicts_each_next_row_of_every_task(episodes: list[Episode], kernel: Kernel) -> None:
    for each, done in zip(episodes, kernel.play(episodes, filtered=True), strict=True):
        assert not done.code.any()
        assert np.median(hand_error(each, done)) < 1e-4, each.task
        for entity in TASKS[each.task].entities:
            moved = np.abs(done.obs - each.rows)[1:, position(entity)].max(axis=1)
            assert np.quantile(moved, 0.9) < 2e-3, (each.task, entity)
        assert np.abs(done.obs - each.rows)[1:, 4:7].max() < 1e-6, each.task


def test_blocks_of_other_entities_are_copied(episodes: list[Episode], kernel: Kernel) -> None:
    each = next(each for each in episodes if each.task == "push")
    noisy = each.rows.copy()
    noisy[:, block("soccer")] = np.arange(len(noisy))[:, None]
    (done,) = kernel.play([replace(each, rows=noisy)], filtered=True)
    others = ~simulated_columns("push")
    np.testing.assert_array_equal(done.obs[:, others], noisy[:, others])


def test_a_teleported_hand_is_far_from_its_prediction(shared_data: Path, kernel: Kernel) -> None:
    data: dict[str, Any] = np.load(shared_data / "mutated" / "metaworld_mutated.npy", allow_pickle=True).item()
    bad = [i for i, fault in enumerate(data["fault"]) if fault == "hand_teleport"]
    chosen = read(shared_data, "mutated/metaworld_mutated.npy", "hand_teleport")
    for i, each, done in zip(bad, chosen, kernel.play(chosen, filtered=True), strict=True):
        step = int(data["fault_step"][i])
        error = hand_error(each, done)
        assert error[step] > 0.05
        assert step == 0 or error[:step].max() < 0.02


def test_one_teleported_row_spoils_the_steps_into_and_out_of_it_only(episodes: list[Episode], kernel: Kernel) -> None:
    each = next(each for each in episodes if each.task == "push")
    rows = each.rows.copy()
    rows[20, :3] = [0.5, 1.0, 0.6]
    (done,) = kernel.play([replace(each, rows=rows)], filtered=True)
    error = np.abs(done.obs - rows)[1:, :3].max(axis=1)
    assert error[19] > 0.3
    assert error[20] > 0.1
    assert error[:19].max() < 1e-3
    assert error[21:].max() < 0.01


def test_an_anchored_replay_charges_a_hand_that_stays_shifted_once(episodes: list[Episode], kernel: Kernel) -> None:
    each = next(each for each in episodes if each.task == "coffee-button")
    rows = each.rows.copy()
    rows[8:, 0] += 0.1
    (carried,) = kernel.play([replace(each, rows=rows)], filtered=True)
    (anchored,) = kernel.play([replace(each, rows=rows)], filtered=True, anchored=True)
    late = slice(12, 20)
    assert np.abs(anchored.obs - rows)[8, :3].max() > 0.05
    assert np.abs(anchored.obs - rows)[late, :3].max() < 0.01 < np.abs(carried.obs - rows)[late, :3].max()


def test_a_replay_continues_from_its_hidden_state_as_if_it_had_not_stopped(
    episodes: list[Episode], kernel: Kernel
) -> None:
    chosen = [each for each in episodes if each.task in ("pick-place", "door-lock", "make-coffee")]
    whole = kernel.play(chosen, filtered=True)
    cuts = [
        Episode(each.task, each.rows[7:], each.action[7:], each.rows[0], done.hidden[7], from_reset=False)
        for each, done in zip(chosen, whole, strict=True)
    ]
    for done, rest in zip(whole, kernel.play(cuts, filtered=True), strict=True):
        np.testing.assert_array_equal(rest.obs[1:, :4], done.obs[8:, :4])
        np.testing.assert_array_equal(rest.hidden, done.hidden[7:])
        assert not rest.guessed


def test_a_kernel_that_has_seen_nothing_continues_from_a_hidden_state_as_well(
    episodes: list[Episode], kernel: Kernel
) -> None:
    for each in (each for each in episodes if each.task in ("reach", "door-lock", "window-close")):
        (whole,) = kernel.play([each], filtered=True)
        fresh = Kernel("2.3", threads=1)
        cut = Episode(each.task, each.rows[7:], each.action[7:], each.rows[0], whole.hidden[7], from_reset=False)
        np.testing.assert_array_equal(fresh.play([cut], filtered=True)[0].obs[1:, :4], whole.obs[8:, :4])
        fresh.close()


def test_a_cut_without_its_hidden_state_is_guessed_from_its_first_row(episodes: list[Episode], kernel: Kernel) -> None:
    each = next(each for each in episodes if each.task == "reach")
    cut = Episode("reach", each.rows[10:], each.action[10:], each.rows[0], from_reset=False)
    (done,) = kernel.play([cut], filtered=True)
    assert done.guessed
    assert not done.code.any()
    assert np.median(hand_error(cut, done)) < 5e-3


def test_neither_neighbours_nor_threads_change_a_replay(episodes: list[Episode], kernel: Kernel) -> None:
    chosen = [each for each in episodes if each.task in ("push", "door-unlock", "window-open", "coffee-button")]
    together = kernel.play(chosen, filtered=True)
    alone = Kernel("2.3", threads=1)
    for each, done in zip(reversed(chosen), reversed(together), strict=True):
        np.testing.assert_array_equal(alone.play([each], filtered=True)[0].obs, done.obs)
    assert alone.steps > sum(len(each.action) for each in chosen)
    alone.close()


def test_a_bad_row_or_action_gets_a_code_and_the_rest_is_replayed(episodes: list[Episode], kernel: Kernel) -> None:
    each = next(each for each in episodes if each.task == "reach")
    rows, action = each.rows.copy(), each.action.copy()
    rows[5, 0] = np.nan
    action[9, 1] = np.inf
    (done,) = kernel.play([replace(each, rows=rows, action=action)], filtered=True)
    assert done.code[5] == ILLEGAL_START
    assert done.code[9] == BAD_ACTION
    assert np.count_nonzero(done.code) == 2
    assert np.isnan(done.obs[6]).all()
    assert np.isnan(done.tip_m[10]).all()
    assert hand_error(each, done)[6] < 1e-3
    (open_loop,) = kernel.play([replace(each, rows=rows, action=action)], filtered=False)
    assert not open_loop.code[:9].any()
    assert (open_loop.code[9:] == BAD_ACTION).all()


def test_an_unusable_first_row_leaves_nothing_to_replay(episodes: list[Episode], kernel: Kernel) -> None:
    each = next(each for each in episodes if each.task == "soccer")
    rows = each.rows.copy()
    rows[0, block("soccer")] = 0
    (done,) = kernel.play([replace(each, rows=rows)], filtered=True)
    assert (done.code == ILLEGAL_START).all()
    assert np.isnan(done.obs).all()


def test_the_tool_tip_is_4_5_cm_under_the_hand_at_a_reset(episodes: list[Episode], kernel: Kernel) -> None:
    each = next(each for each in episodes if each.task == "reach")
    (done,) = kernel.play([each], filtered=False)
    np.testing.assert_allclose(done.tip_m[0] - each.rows[0, :3], [0, 0, -0.045], atol=5e-3)


def test_contact_is_told_from_free_space(episodes: list[Episode], kernel: Kernel) -> None:
    reach, push = (next(each for each in episodes if each.task == task) for task in ("reach", "pick-place"))
    free, held = kernel.play([reach, push], filtered=True)
    assert not free.touching.any()
    assert held.touching.any()
    assert not held.touching[:3].any()


def test_the_family_of_a_file_is_told_by_the_hand_of_its_first_rows(shared_data: Path) -> None:
    kernels = {name: Kernel(name, threads=1) for name in simulator.FAMILIES}
    for file, family in (("metaworld_real", "2.3"), ("metaworld_real_mj301", "3.0")):
        chosen = read(shared_data, f"golden/{file}.npy")
        rows, tasks = np.stack([each.rows[0] for each in chosen]), [each.task for each in chosen]
        name, evidence = simulator.by_first_rows(rows, tasks, kernels)
        assert name == family
        assert evidence
        assert simulator.by_first_rows(rows + 0.1, tasks, kernels) == ("", "")
    for each in kernels.values():
        each.close()


@pytest.mark.parametrize("task", ["push", "window-close", "coffee-push"])
def test_the_stock_family_does_what_metaworld_itself_does(task: str) -> None:
    rng = np.random.default_rng(5)
    env: Any = ALL_V3_ENVIRONMENTS[f"{task}-v3"]()
    env._partially_observable, env._freeze_rand_vec, env._set_task_called = False, True, True
    low, high = env._random_reset_space.low, env._random_reset_space.high
    env._last_rand_vec = np.concatenate([low[:3] + 0.4 * (high - low)[:3], high[3:]])
    seen, _ = env.reset()
    rows = [row_of(task, seen)]
    action = np.clip(rng.normal(0, 0.7, (25, 4)), -1, 1).astype(np.float32)
    for each in action:
        seen, *_ = env.step(each)
        rows.append(row_of(task, seen))
    if task == "window-close":  # metaworld's first row still shows the window elsewhere
        rows[0][position("window")] = rows[1][position("window")]
    kernel = Kernel("3.x", threads=1)
    (done,) = kernel.play([Episode(task, np.stack(rows), action)], filtered=False)
    np.testing.assert_allclose(done.obs[:, :4], np.stack(rows)[:, :4], atol=1e-4)
    kernel.close()


def row_of(task: str, seen: Any) -> Any:
    """A row of 91 numbers from metaworld's 39."""
    row = np.zeros(91)
    row[:4], row[4:7] = seen[:4], seen[36:39]
    row[block(TASKS[task].entities[0])] = seen[4:11]
    return row


def test_both_stages_of_make_coffee_have_their_goal(shared_data: Path, kernel: Kernel) -> None:
    episodes = [each for each in read(shared_data, "golden/metaworld_hard.npy") if each.task == "make-coffee"]
    changed = [each for each in episodes if (np.abs(np.diff(each.rows[:, 4:7], axis=0)) > 1e-4).any()]
    assert changed
    for each, done in zip(changed, kernel.play(changed, filtered=True), strict=True):
        np.testing.assert_allclose(done.obs[:, 4:7], each.rows[:, 4:7], atol=1e-6)


def test_tasks_that_share_a_model_do_not_hand_on_its_moved_furniture(episodes: list[Episode]) -> None:
    first = {each.task: each for each in reversed(episodes)}
    shared: dict[str, list[Episode]] = {}
    for task, each in first.items():
        shared.setdefault(scene_key(task, has_modified_door(task, each.rows[0], each.rows)), []).append(each)
    pairs = [(one, other) for group in shared.values() for one in group for other in group if one.task != other.task]
    assert pairs
    for one, other in pairs:
        alone, after = Kernel("2.3", threads=1), Kernel("2.3", threads=1)
        (expected,) = alone.play([other], filtered=True)
        after.play([one], filtered=True)
        (found,) = after.play([other], filtered=True)
        np.testing.assert_array_equal(found.obs, expected.obs, err_msg=f"{other.task} after {one.task}")
        alone.close()
        after.close()
