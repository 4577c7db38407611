"""Files without next observations: was the last action executed, or is it a filler?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

WALK = (2, 2, 2, 2, 1, 1, 1, 1)  # the last step reaches the ball, so only an executed last action succeeds


def _content(bench: Any, episode: Any, world: Any, n: int, rewarded: int = 0) -> dict[str, Any]:
    episodes = []
    for i in range(n):
        row0 = world.ROW0.copy()
        row0[[0, 3, 6, 9]] = 2, i % 6, (i // 6) % 6, (i // 36) % 6
        rewards = world.goto_reward(world.play(row0, WALK))
        rewards[-1] = rewards[-1] if i < rewarded else 0
        episodes.append(episode(WALK, row0, rewards=rewards))
    return bench.arrays(episodes, width=10, next_observations=False)


def _is_executed(run: Any, n: int) -> None:
    assert (run.r["gc_imagined"] == 1).all()
    assert (run.r["gc_replayed"] == 1).all()
    assert all("final_row_simulated" in flags for flags in run.r["flags"])
    assert (~np.isnan(run.t["tc"])).sum() == 7 * n
    assert (run.t["tc"][~np.isnan(run.t["tc"])] == 1).all()
    last = run.t["step"] == 7
    assert np.isnan(run.t["tc"][last]).all()
    assert np.isnan(run.t["dl"][last]).all()


def _is_filler(run: Any, n: int) -> None:
    assert (run.r["gc_imagined"] == 0).all()
    assert (run.r["gc_replayed"] == 0).all()
    assert not any("final_row_simulated" in flags for flags in run.r["flags"])
    assert (run.r["length"] == 7).all()
    assert len(run.t["tc"]) == 7 * n
    assert (run.t["tc"] == 1).all()
    assert (run.r["coverage_tc"] == 1).all()


@pytest.mark.parametrize(
    ("n", "rewarded", "options", "filler"),
    [
        (20, 0, (), True),
        (24, 0, ("--last-action", "auto"), True),
        (20, 1, (), False),
        (24, 24, (), False),
        (19, 0, (), False),
        (1, 0, (), False),
        (20, 0, ("--last-action", "executed"), False),
        (19, 0, ("--last-action", "filler"), True),
        (24, 24, ("--last-action", "filler"), True),
    ],
)
def test_the_last_action_is_decided_once_per_file(
    n: int,
    rewarded: int,
    options: tuple[str, ...],
    filler: bool,
    qualcheck: Any,
    bench: Any,
    episode: Any,
    world: Any,
    tmp_path: Path,
) -> None:
    path = bench.npy(tmp_path / "a.npy", _content(bench, episode, world, n, rewarded))
    run = qualcheck.score(tmp_path / "run", path, options=options)
    (_is_filler if filler else _is_executed)(run, n)


def test_each_of_two_files_is_decided_by_itself(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    one = bench.npy(tmp_path / "one.npy", _content(bench, episode, world, 20))
    two = bench.npy(tmp_path / "two.npy", _content(bench, episode, world, 20, 20))
    run = qualcheck.score(tmp_path / "run", one, two)
    assert len(run.r["rollout"]) == 40
    assert np.array_equal(run.r["rollout"], np.arange(40))
    assert np.array_equal(run.r["source_rollout"], np.tile(np.arange(20), 2))
    assert list(run.r["gc_imagined"]) == [0] * 20 + [1] * 20
    assert len(set(run.r["source"])) == 2


def test_rewards_that_are_missing_do_not_make_the_last_action_a_filler_without_being_asked(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    content = _content(bench, episode, world, 20)
    del content["rewards"]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", content))
    _is_executed(run, 20)


def test_a_file_with_next_observations_never_has_a_filler(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    episodes = []
    for i in range(24):
        row0 = world.ROW0.copy()
        row0[3], row0[6] = i % 6, i // 6
        episodes.append(episode(WALK, row0, rewards=np.zeros(8)))
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays(episodes)))
    assert (run.r["length"] == 8).all()
    assert (run.t["tc"] == 1).all()
    assert (run.r["gc_imagined"] == 1).all()
    assert not any("final_row_simulated" in flags for flags in run.r["flags"])


def test_an_unknown_last_action_is_a_usage_error(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    path = bench.npy(tmp_path / "a.npy", _content(bench, episode, world, 2))
    done = qualcheck("score", path, "--env", "babyai", "--last-action", "maybe", "-o", tmp_path / "run")
    assert done.returncode == 2
    assert not (tmp_path / "run").exists()
