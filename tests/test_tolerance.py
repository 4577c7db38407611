"""Tolerances by situation: what is common, what a whole rollout keeps, and in which units."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.conformal import Measured, known_states
from qualcheck.tolerance import Scale, Tolerance

BLOCKS = {"hand": "hand", "cup": "cup", "cup_turn": "cup_turn"}
AIR, GRIP = 0, 1


def measured(rollouts: int = 200, steps: int = 50) -> Measured:
    """Real errors: the hand's noise everywhere; in the grip, one rollout in fifty sees the cup turn wildly once."""
    rng = np.random.default_rng(0)
    size = rollouts * steps
    errors = np.abs(rng.normal(size=(1, size, 3))) * [1e-3, 1e-3, 1e-3]
    situation = np.tile(np.repeat([AIR, GRIP], steps // 2), rollouts)
    errors[0, situation == AIR, 1:] = 0  # a cup at rest is exactly where it was
    still = rng.random(size) < 0.7
    errors[0, still, 1:] = 0  # and in the grip mostly so too
    errors[0, steps - 1 :: 50 * steps, 2] = 0.3
    return Measured(errors, np.repeat(np.arange(rollouts), steps), situation, ("carried",))


def scale() -> Scale:
    found = known_states(measured(), {"air": AIR, "grip": GRIP}, BLOCKS, 0.01)
    air, grip = (Tolerance(found[name]["median"], found[name]["tolerance"], found[name]["common"]) for name in found)
    return Scale("float32", air, np.ones(3), np.ones(3), "conformal", {"grip": grip})


def test_one_wild_kind_of_error_does_not_let_the_others_off() -> None:
    grip = scale().settled["grip"]
    assert grip.limit("cup_turn") > 0.25, "what one rollout in fifty shows is real"
    by_medians = grip.limit("cup_turn") * 1e-3 / 1e-6  # a median of the smallest error above 0 would be a micron
    assert grip.limit("hand") < by_medians / 100
    assert grip.usual["hand"] == pytest.approx(2.576e-3, rel=0.1), "the 0.99 quantile of a normal error of 1e-3"


def test_common_noise_is_what_99_of_100_real_transitions_keep() -> None:
    data, known = measured(), scale()
    for number, tolerance in ((AIR, known.noise), (GRIP, known.settled["grip"])):
        over = tolerance.over_common(data.errors[0, data.situation == number], list(BLOCKS))
        assert (over <= 1).mean() == pytest.approx(0.99, abs=1e-3)
        assert tolerance.common < tolerance.limit_joint
    slip = np.array([[0.0, 0.0, 0.2]])
    assert known.settled["grip"].error(slip, list(BLOCKS)) < 1 < known.settled["grip"].over_common(slip, list(BLOCKS))


def test_what_is_common_in_the_grip_does_not_excuse_where_the_hidden_state_is_unknown() -> None:
    known = scale()
    error = np.array([[[0.0, 2e-3, 0.0]]])  # of a cup: never in the air, common in the grip
    names = list(BLOCKS)
    assert known.over_common(error, names, "grip") < 1
    assert known.over_common(error, names, "air") > 1
    assert known.over_common(error, names, "unsettled") > 1


def test_a_block_that_real_data_never_show_wrong_has_no_room_to_be_wrong() -> None:
    assert scale().noise.limit("cup") < 1e-4
    assert scale().noise.error(np.array([0.0, 1e-3, 0.0]), list(BLOCKS)) > 1


def test_where_every_real_error_is_zero_only_zero_is_common() -> None:
    exact = Tolerance({"hand": 1.0}, 1e-9, 0.0)
    np.testing.assert_array_equal(exact.over_common(np.array([[0.0], [1e-12]]), ["hand"]), [0, np.inf])


def test_with_few_rollouts_the_promise_holds_since_units_are_learnt_from_others() -> None:
    """30 rollouts that slip rarely and far: with units of the same rollouts a quarter of new ones was rejected."""
    rng = np.random.default_rng(0)
    rejected = []
    for _ in range(150):
        slips = np.abs(rng.standard_t(2, size=(60, 30, 3))) * 1e-3
        part = Measured(
            slips.reshape(1, -1, 3),
            np.repeat(np.arange(60), 30),
            np.tile(np.repeat([AIR, GRIP], [25, 5]), 60),
            ("carried",),
        )
        found = known_states(part.of(part.owner < 30), {"air": AIR, "grip": GRIP}, BLOCKS, 0.1)
        over = np.zeros(60 * 30)
        for name, number in {"air": AIR, "grip": GRIP}.items():
            at = part.situation == number
            over[at] = Tolerance(found[name]["median"], found[name]["tolerance"]).error(
                part.errors[0, at], list(BLOCKS)
            )
        rejected.append((over.reshape(60, 30)[30:].max(axis=1) > 1).mean())
    mcse = np.std(rejected) / np.sqrt(len(rejected))
    assert 0.1 - 1 / 31 - 2 * mcse <= np.mean(rejected) <= 0.1 + 2 * mcse


def test_rollouts_of_several_files_are_told_apart_and_a_single_one_has_units_of_its_own() -> None:
    one = measured(rollouts=1)
    both = Measured.together([one, one])
    assert np.unique(both.owner).tolist() == [0, 1]
    assert known_states(one, {"air": AIR}, BLOCKS, 0.1)["air"]["rollouts"] == 1
    assert known_states(both, {"air": AIR}, BLOCKS, 0.1)["air"]["rollouts"] == 2


def test_real_data_that_are_never_wrong_leave_room_for_float32_only() -> None:
    exact = Measured(np.zeros((1, 300, 3)), np.repeat(np.arange(100), 3), np.zeros(300, int), ("carried",))
    found = known_states(exact, {"air": AIR}, BLOCKS, 0.01)["air"]
    tolerance = Tolerance(found["median"], found["tolerance"])
    assert tolerance.limit("hand") == pytest.approx(np.finfo(np.float32).eps)
