"""The checker checked: planted faults of known size, rules that must be triggered, stubs that must be exposed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qualcheck
from qualcheck.errors import DataError, UnknownName, UsageError
from qualcheck.selftesting.generic import faults
from qualcheck.selftesting.judging import effects
from qualcheck.selftesting.plant import Plant
from qualcheck.selftesting.real import Real, real_rollouts
from qualcheck.selftesting.rules import rule_plants
from qualcheck.selftesting.running import own_faults
from qualcheck.selftesting.table import SelfTest, Tally, failures, smallest

SHIPPED = Path(qualcheck.__file__).parent / "data"


@pytest.fixture(scope="module")
def babyai() -> SelfTest:
    return qualcheck.selftest("babyai", plants=12)


@pytest.fixture(scope="module")
def halfcheetah() -> SelfTest:
    return qualcheck.selftest("halfcheetah", plants=6, rollouts=10)


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    found = real_rollouts(request.param, [], tmp_path_factory.mktemp("real"), 20, 0)
    yield found
    found.adapter.close()


def test_every_fault_of_the_exact_environment_is_found_at_its_step(babyai: SelfTest) -> None:
    assert babyai.passed, babyai.failures
    assert {row.fault for row in babyai.rows} >= {
        "wall crossing", "wrong carry", "two carried", "colour change", "plausible object", "action swapped",
        "actions shifted", "duplicated step", "non-finite number", "goal swapped", "tail cut", "reward one step late",
    }  # fmt: skip
    for row in babyai.rows:
        assert row.counted_found == row.counted > 0, row
        assert row.at_step == row.counted, row  # another action may change nothing, and then nothing is found
    assert (babyai.false_alarms, babyai.after_fault_alarms) == (0, 0)
    assert babyai.honest_steps > 200
    assert (babyai.rules, babyai.rules_unbroken) == (47, [])


def test_detection_rises_with_size_and_crosses_half_near_the_tolerance(halfcheetah: SelfTest) -> None:
    assert halfcheetah.passed, halfcheetah.failures
    assert halfcheetah.false_alarms == 0
    for name in {row.fault for row in halfcheetah.rows if row.size}:
        mine = sorted((float(row.size), row.at_step / row.n) for row in halfcheetah.rows if row.fault == name)
        shares = [share for _, share in mine]
        assert shares == sorted(shares), name
        assert shares[0] == 0
        assert shares[-1] == 1
    for block, size in halfcheetah.smallest.items():
        assert size is not None, block
        assert 0.5 <= size <= 2, (block, size)
    strict = [row.strict / row.n for row in halfcheetah.rows if row.size]
    assert min(strict) == 1  # a quarter of the judging tolerance is far above the noise floor


@pytest.mark.slow
@pytest.mark.parametrize("env", ["clevr", "metaworld", "libero"])
def test_the_other_environments_pass_their_self_test(env: str) -> None:
    found = qualcheck.selftest(env, plants=12, rollouts=40)
    assert found.passed, found.failures
    for block, size in found.smallest.items():
        assert size is not None, block
        assert size <= 2, (block, size)


def test_stub_checkers_are_exposed(babyai: SelfTest, halfcheetah: SelfTest) -> None:
    for found in (babyai, halfcheetah):
        assert {name: stub["exposed"] for name, stub in found.stubs.items()} == {
            "always passes": True,
            "always fails": True,
        }
        assert "honest steps rejected" in found.stubs["always fails"]["why"]
        assert "0 of" in found.stubs["always passes"]["why"]


@pytest.mark.parametrize("real", ["babyai", "halfcheetah", "clevr"], indirect=True)
def test_every_rule_is_broken_first_by_a_plant_and_a_deleted_one_is_missed(real: Real) -> None:
    crafted = own_faults(real.adapter.spec.id).get("CRAFTED", {})
    found, unbroken = rule_plants(real, crafted, np.random.default_rng(0))
    hard = [rule.id for rule in real.adapter.rules if rule.hard]
    assert unbroken == []
    assert sorted(plant.fault for plant in found) == sorted(f"rule {name}" for name in hard)
    _each_deletion_is_seen(real, found)


@pytest.mark.slow
@pytest.mark.parametrize("real", ["metaworld", "libero"], indirect=True)
def test_every_rule_of_the_arms_is_broken_first_by_a_plant_and_a_deleted_one_is_missed(real: Real) -> None:
    crafted = own_faults(real.adapter.spec.id).get("CRAFTED", {})
    found, unbroken = rule_plants(real, crafted, np.random.default_rng(0))
    assert unbroken == []
    _each_deletion_is_seen(real, found)


def _each_deletion_is_seen(real: Real, found: list[Plant]) -> None:
    """With any one rule gone the plant that breaks it first is judged otherwise."""
    adapter = real.adapter
    for plant in found:
        name = plant.fault.removeprefix("rule ")
        number = next(k for k, rule in enumerate(adapter.rules) if rule.id == name) + 1
        one = plant.rollouts
        placed = [adapter.place(one.instruction[0], None if one.goal is None else one.goal[0])]
        law = adapter.legality(one, placed, np.zeros(1, np.int64))
        told = law.row0_rule[0] if plant.metric == "row0" else law.rule[plant.step]
        assert told == number, name


def test_a_rule_that_nothing_breaks_fails_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    from qualcheck.selftesting import running
    from qualcheck.spec import Rule

    kept = running.rule_plants

    def with_another(real: Real, crafted: dict[str, Any], rng: np.random.Generator) -> Any:
        found, unbroken = kept(real, crafted, rng)
        never = Rule("step.never", "causality", "1", "0", "a rule that nothing breaks")
        return found, [*unbroken, never.id]

    monkeypatch.setattr(running, "rule_plants", with_another)
    found = qualcheck.selftest("babyai", plants=2, rollouts=11)
    assert not found.passed
    assert any("rule step.never" in failure for failure in found.failures)


@pytest.mark.parametrize("real", ["halfcheetah"], indirect=True)
def test_the_effect_of_a_wrong_action_is_how_far_the_simulator_ends_from_where_it_did(real: Real) -> None:
    swapped = next(fault for fault in faults(real) if fault.name == "action swapped")
    plant = swapped.plant(real, 0, 1.0, np.random.default_rng(1))
    assert plant is not None
    (size,) = effects(real, [plant])
    end = real.adapter.replay(plant.rollouts).candidates[0][plant.step]
    was = real.adapter.replay(real.rollouts[0]).candidates[0][plant.step]
    scale = real.scale
    assert scale is not None
    assert size == pytest.approx((np.abs(end - was) / (0.5 * scale.std_change)).max(), rel=1e-6)
    same = replace(plant, rollouts=real.rollouts[0])
    assert effects(real, [same]) == [0.0]


def test_bars_and_crossings_by_hand() -> None:
    from qualcheck.selftesting.table import Row

    def row(fault: str, size: str, k: int, counted: int, found: int) -> Row:
        return Row(fault, size, "step", 10, k, k, k, counted, found, 1.0, 0.0, 1.0)

    rows = [row("displaced a", "0.5", 0, 0, 0), row("displaced a", "1", 2, 0, 0), row("displaced a", "2", 8, 10, 8)]
    tally = Tally(rows, 100, 3, 0, 0, 0)
    assert failures(tally, 0.8, exact=False) == []
    assert failures(tally, 0.9, exact=False) == [
        "displaced a: 8 of 10 faults of at least 2 tolerances found, the bar is 0.9"
    ]
    assert failures(tally, 0.8, exact=True) == ["3 of 100 honest steps rejected, the bar is 0"]
    assert smallest(rows) == {"a": pytest.approx(np.sqrt(2))}


def test_real_files_may_be_given_and_are_not_touched(tmp_path: Path) -> None:
    before = (SHIPPED / "babyai_real.parquet").read_bytes()
    found = qualcheck.selftest("babyai", [SHIPPED / "babyai_real.parquet"], plants=3, rollouts=12)
    assert str(SHIPPED / "babyai_real.parquet") == found.source
    assert (SHIPPED / "babyai_real.parquet").read_bytes() == before


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    for options in ({"fail_under": 0}, {"fail_under": 1.5}, {"rollouts": 0}, {"plants": 0}, {"seed": -1}):
        with pytest.raises(UsageError):
            qualcheck.selftest("babyai", **options)
    with pytest.raises(UnknownName):
        qualcheck.selftest("babyia")
    with pytest.raises(DataError):
        qualcheck.selftest("babyai", [tmp_path / "nothing.npy"])
    (tmp_path / "empty.npy").write_bytes(b"")
    with pytest.raises(DataError):
        qualcheck.selftest("babyai", [tmp_path / "empty.npy"])


def test_the_command_prints_a_table_and_ends_with_4_under_its_bar(tmp_path: Path) -> None:
    real = str(SHIPPED / "babyai_real.parquet")
    command = [sys.executable, "-m", "qualcheck", "selftest", "babyai", real, "--plants", "2", "--rollouts", "12"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("passed")
    content = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=tmp_path).stdout)
    assert content["passed"]
    assert content["stubs"]["always passes"]["exposed"]
    # imagined rollouts are not real: a good part of their steps is rejected
    imagined = [real if word == real else word for word in command]
    imagined[imagined.index(real)] = str(SHIPPED / "babyai_imagined.parquet")
    failed = subprocess.run(imagined, capture_output=True, text=True, cwd=tmp_path)
    assert failed.returncode == 4, failed.stdout + failed.stderr
    assert "honest steps rejected" in failed.stdout
    assert list(tmp_path.iterdir()) == []


def test_two_runs_with_one_seed_say_the_same() -> None:
    first, second = (qualcheck.selftest("babyai", plants=2, rollouts=11, seed=4) for _ in range(2))
    assert first.to_json() == second.to_json()
