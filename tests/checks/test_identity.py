"""Equal rollouts have equal fingerprints, others do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualcheck.checks.identity import cluster, fingerprint, row_hash
from qualcheck.types import Rollouts


def rollouts(obs: np.ndarray, action: np.ndarray, length: list[int], text: list[str | None]) -> Rollouts:
    n = len(length)
    return Rollouts(
        obs=obs,
        action=action,
        offsets=np.concatenate([[0], np.cumsum(length)]),
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=text,
    )


@pytest.fixture
def twins() -> Rollouts:
    """Four rollouts of 3 steps; the last is the first again."""
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 7, (16, 17)).astype(np.float32)
    action = rng.integers(0, 7, 12)
    obs[12:], action[9:] = obs[:4], action[:3]
    return rollouts(obs, action, [3, 3, 3, 3], ["a", "b", "a", "a"])


def test_equal_rollouts_share_their_fingerprint_wherever_they_stand(twins: Rollouts) -> None:
    found = fingerprint(twins)
    assert found[0] == found[3]
    assert len(set(found.tolist())) == 3


@pytest.mark.parametrize("what", ["row", "action", "text", "order", "length"])
def test_any_difference_changes_the_fingerprint(twins: Rollouts, what: str) -> None:
    obs, action, text = twins.obs.copy(), twins.action.copy(), list(twins.instruction)
    if what == "row":
        obs[14, 3] += 1
    elif what == "action":
        action[10] = 6 - action[10] if action[10] != 3 else 4
    elif what == "text":
        text[3] = "A"
    elif what == "order":
        obs[[13, 14]] = obs[[14, 13]]
    else:
        keep = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
        changed = rollouts(obs[:15], action[keep], [3, 3, 3, 2], text)
        assert fingerprint(changed)[0] != fingerprint(changed)[3]
        return
    changed = replace(twins, obs=obs, action=action, instruction=text)
    assert fingerprint(changed)[0] != fingerprint(changed)[3]


def test_a_million_small_rows_do_not_collide() -> None:
    rng = np.random.default_rng(1)
    rows = np.unique(rng.integers(0, 7, (1_000_000, 17)), axis=0).astype(np.float32)
    assert len(np.unique(row_hash(rows))) == len(rows)


def test_a_cluster_is_a_start_and_an_instruction(twins: Rollouts) -> None:
    found = cluster(twins)
    assert found[0] == found[3]
    obs = twins.obs.copy()
    obs[13:] += 1  # not row 0
    assert (cluster(replace(twins, obs=obs)) == found).all()
    obs[12, 0] += 1
    assert cluster(replace(twins, obs=obs))[3] != found[3]
    assert cluster(replace(twins, instruction=["b", "b", "a", "a"]))[0] != found[0]
    assert cluster(replace(twins, instruction=[None, "b", "a", "a"]))[0] != found[0]
