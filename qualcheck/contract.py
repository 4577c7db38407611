"""The conformance suite of environment adapters: what the rest of qualcheck takes for granted about one.

Five lines test an adapter on random play in the environments that it makes:

    adapter = registry.load("my-environment")
    rng = np.random.default_rng(0)
    rollouts = play(adapter, {"my-task": "an instruction for it"}, 20, rng)
    for failure in check_adapter(adapter, rollouts, rng=rng):
        print(failure)

Recordings made elsewhere are the stronger test: any `Rollouts` from resets will do that stand under their instructions
and were recorded in the simulator the adapter replays, four of two transitions at least.

Under pytest, one test a law:

    @pytest.mark.parametrize("law", CONTRACT)
    def test_my_adapter(law):
        assert not check_adapter(adapter, rollouts, rng=np.random.default_rng(0), laws=[law])

The adapter's class must be callable without arguments, as the registry does; some laws make a second instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qualcheck import contract_replay
from qualcheck.adapter import EnvAdapter
from qualcheck.contract_replay import RATE, spoil
from qualcheck.contract_subject import Subject, imagined, placed, play
from qualcheck.errors import QualcheckError, UsageError, unknown_name
from qualcheck.types import AnyArray, Rollouts, Trajectory

__all__ = ["CONTRACT", "Failure", "Subject", "check_adapter", "play"]

NONSENSE = "colourless green ideas sleep furiously"
PREFIXES = ("row.", "context.", "step.", "row0.")
POLICY_EPISODES, POLICY_HORIZON = 3, 5
REWARD_ROUNDING = 1e-4


@dataclass(frozen=True)
class Failure:
    """One broken law, and how it showed."""

    law: str
    message: str

    def __str__(self) -> str:
        return f"{self.law}: {self.message}"


def spec_is_consistent(subject: Subject) -> Iterator[str]:
    """Blocks cover the columns once, names are unique, rules have known prefixes, codes begin with ""."""
    spec, rules = subject.adapter.spec, subject.adapter.rules
    if sorted(column for block in spec.blocks for column in block.columns) != list(range(spec.obs_size)):
        yield f"the blocks do not cover each of the {spec.obs_size} columns exactly once"
    if len(spec.columns) != spec.obs_size:
        yield f"{len(spec.columns)} column names for {spec.obs_size} columns"
    for kind, names in (
        ("block", [block.name for block in spec.blocks]),
        ("rule", [rule.id for rule in rules]),
        ("code", list(spec.codes)),
        ("column", list(spec.columns)),
    ):
        if len(set(names)) < len(names):
            yield f"two of one {kind} name: {sorted(names)}"
    if not spec.codes or spec.codes[0]:
        yield 'codes[0] is not ""'
    if not spec.id or not spec.version or not all(block.unit for block in spec.blocks):
        yield "the id, the version or the unit of a block is empty"
    if not spec.exact and not spec.judging_grade.startswith("scaled:"):
        yield f"judging grade {spec.judging_grade!r} is neither exact nor scaled:S"
    yield from (
        f"rule {rule.id!r} begins with none of {PREFIXES}" for rule in rules if not rule.id.startswith(PREFIXES)
    )


def goals_keep_to_rows_that_are_ok(subject: Subject) -> Iterator[str]:
    """Goals are false on other rows, shares stay in [0, 1], and a goal that holds has all its sub-goals."""
    adapter, rows = subject.adapter, imagined(subject.adapter, subject.rollouts)
    placements, which = placed(adapter, subject.rollouts)
    full = adapter.goals(rows, placements, which)
    if np.any((full.share < 0) | (full.share > 1) | ~np.isfinite(full.share)):
        yield "a share of sub-goals leaves [0, 1]"
    if np.any(full.share[full.intended] < 1):
        yield "an intended goal holds where not all its sub-goals do"
    ok = rows.ok & ~(full.intended | full.released) & (subject.rng.random(len(rows.ok)) < 0.8)
    for obs in (rows.obs, np.where(ok[:, None], rows.obs, np.nan)):
        part = adapter.goals(Trajectory(obs, rows.offsets, ok), placements, which)
        if np.any((part.intended | part.released)[~ok]):
            yield "a goal holds on a row that is not ok"


def instructions_are_placed_or_refused(subject: Subject) -> Iterator[str]:
    """A missing or meaningless instruction has a code, and no task, goal or reward; a real one has a task."""
    adapter, rollouts = subject.adapter, subject.rollouts
    known = {task for tasks in adapter.tasks().values() for task in tasks}
    for text, code in ((None, "no_instruction"), (NONSENSE, "ambiguous_instruction")):
        placement = adapter.place(text)
        if placement.task or placement.code != code:
            yield f"place({text!r}) gives task {placement.task!r} with code {placement.code!r}, expected code {code!r}"
        every = np.zeros(rollouts.n_rollouts, np.int64)
        goal = adapter.goals(imagined(adapter, rollouts), [placement], every)
        if np.any(goal.intended | goal.released):
            yield f"a goal holds under the instruction {text!r}"
        for name, values in adapter.reward(rollouts, [placement], every).items():
            if not np.isnan(values).all():
                yield f"reward {name!r} has a value under the instruction {text!r}"
    for placement in placed(adapter, rollouts)[0]:
        if placement.code or placement.task not in known:
            yield f"a real instruction is placed as {placement}"


def recorded_rewards_are_recomputed(subject: Subject) -> Iterator[str]:
    """Where the recording has rewards, one reading of them equals it on real transitions.

    Of the tasks that the spec calls unrewarded only the rewards that are recomputed have to be equal.
    """
    rollouts = subject.rollouts
    if rollouts.reward is None:
        return
    placements, which = placed(subject.adapter, rollouts)
    readings = subject.adapter.reward(rollouts, placements, which)
    partly = np.array([one.task in subject.adapter.spec.unrewarded for one in placements], bool)[which][
        rollouts.rollout
    ]
    same = [
        (np.abs(values - rollouts.reward) <= REWARD_ROUNDING)[rollouts.has_end & ~(partly & np.isnan(values))]
        for values in readings.values()
    ]
    same = [one for one in same if len(one)]
    if max((float(np.mean(one)) for one in same), default=1.0 if partly.all() else 0.0) < RATE:
        yield f"none of the readings {sorted(readings)} equals the recorded reward"


def real_rollouts_are_legal(subject: Subject) -> Iterator[str]:
    """Real rollouts break no hard rule, those of row 0 included, and every end row they show is judged."""
    rollouts, rules = subject.rollouts, subject.adapter.rules
    found = subject.adapter.legality(rollouts, *placed(subject.adapter, rollouts))
    broken = {rules[k - 1].id for k in np.concatenate([found.rule, found.row0_rule]) if k > 0}
    if broken:
        yield f"real rollouts break {sorted(broken)}"
    if np.any(found.rule[rollouts.has_end] < 0):
        yield "transitions with an end row are not judged"
    if np.any(found.rule[~rollouts.has_end] >= 0):
        yield "transitions without an end row are judged"


def rules_are_evaluated(subject: Subject) -> Iterator[str]:
    """Soft rules are all counted; faults break hard ones of each kind declared; numbers point to the right rules."""
    rollouts, rules, rng = subject.rollouts, subject.adapter.rules, subject.rng
    placements, which = placed(subject.adapter, rollouts)
    soft = set(subject.adapter.legality(rollouts, placements, which).soft)
    if soft != {rule.id for rule in rules if not rule.hard}:
        yield f"the soft rules counted are {sorted(soft)}"
    out_of_range = spoil(rollouts.obs, np.arange(len(rollouts.obs)), -1e6, 0)
    shuffled, columns = rollouts.obs.copy(), np.arange(rollouts.obs.shape[1])
    swapped = rng.permutation(len(shuffled))
    shuffled[np.arange(len(shuffled)), rng.choice(columns, len(shuffled))] = rollouts.obs[swapped, columns[-1] // 2]
    seen: set[str] = set()
    for obs in (out_of_range, shuffled, rollouts.obs[swapped], _mixed_columns(rollouts.obs, rng)):
        found = subject.adapter.legality(replace(rollouts, obs=obs), placements, which)
        for numbers, row0 in ((found.rule, False), (found.row0_rule, True)):
            for k in np.unique(numbers[numbers > 0]):
                if k > len(rules) or not rules[k - 1].hard or rules[k - 1].id.startswith("row0.") != row0:
                    yield f"rule number {k} points to no hard rule of {'row 0' if row0 else 'transitions'}"
                else:
                    seen.add(rules[k - 1].id)
    for prefix in PREFIXES:
        declared = {rule.id for rule in rules if rule.hard and rule.id.startswith(prefix)}
        if declared and not declared & seen:
            yield f"none of the rules {sorted(declared)} is broken by misplaced rows and numbers"


def _mixed_columns(obs: AnyArray, rng: np.random.Generator) -> AnyArray:
    """Rows whose numbers come from different real rows, a tenth of the numbers each."""
    mixed = obs.copy()
    for column in range(obs.shape[1]):
        taken = rng.random(len(obs)) < 0.1
        mixed[taken, column] = rng.permutation(obs[:, column])[taken]
    return mixed


def tasks_make_environments(subject: Subject) -> Iterator[str]:
    """Every task makes a gymnasium environment of the declared spaces, and an unknown one is refused by name."""
    adapter, spec = subject.adapter, subject.adapter.spec
    names = [task for tasks in adapter.tasks().values() for task in tasks]
    if not names:
        yield "there is no task"
    for task in names:
        env = adapter.make_env(task)
        first, _ = env.reset(seed=int(subject.rng.integers(2**31)))
        env.action_space.seed(int(subject.rng.integers(2**31)))
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        for row in (first, obs):
            if np.shape(row) not in ((spec.obs_size,), (spec.obs_size + spec.code_size,)):
                yield f"{task}: an observation has shape {np.shape(row)}"
            elif np.any(adapter.takeable(np.asarray(row)[None, : spec.obs_size]) != 0):
                yield f"{task}: a row of the environment is not takeable"
        wanted = (spec.action.size,) if spec.action.kind == "box" else ()
        if env.action_space.shape != wanted or getattr(env.action_space, "n", spec.action.size) != spec.action.size:
            yield f"{task}: the action space is {env.action_space}"
        if not np.isfinite(reward) or not {type(terminated), type(truncated)} <= {bool, np.bool_}:
            yield f"{task}: step returns reward {reward!r}, terminated {terminated!r}, truncated {truncated!r}"
        if "is_success" not in info:
            yield f"{task}: info has no is_success"
        env.close()
    try:
        adapter.make_env(NONSENSE)
        yield "make_env makes an environment of an unknown task"
    except QualcheckError:
        pass


def floors_are_counts(subject: Subject) -> Iterator[str]:
    """Measured floors are successes out of the episodes asked for, the same from the same generator."""
    adapter = subject.adapter
    for task in {tasks[0] for tasks in adapter.tasks().values() if tasks}:
        for policy in ("noop", "random"):
            found = [
                adapter.measure_floor(task, policy, POLICY_HORIZON, POLICY_EPISODES, np.random.default_rng(7))
                for _ in range(2)
            ]
            if found[0] != found[1]:
                yield f"{task}, {policy}: two measurements from one generator differ: {found}"
            if found[0] is None:
                continue  # there is no such policy, as where no action does nothing
            if found[0][1] != POLICY_EPISODES or not 0 <= found[0][0] <= POLICY_EPISODES:
                yield f"{task}, {policy}: {found[0]} is no count out of {POLICY_EPISODES} episodes"
            shipped = adapter.floor(task, policy, adapter.spec.horizon)
            if shipped is not None and not 0 <= shipped[0] <= shipped[1]:
                yield f"{task}, {policy}: the shipped floor {shipped} is no count"


def closing_twice_is_fine(subject: Subject) -> Iterator[str]:
    """An adapter can be closed again, as error handling may do."""
    adapter = type(subject.adapter)()
    adapter.close()
    adapter.close()
    yield from ()


CONTRACT: dict[str, Callable[[Subject], Iterator[str]]] = {
    law.__name__: law
    for law in (
        spec_is_consistent,
        contract_replay.results_have_declared_shapes,
        contract_replay.replay_is_deterministic,
        contract_replay.rollouts_do_not_influence_each_other,
        contract_replay.calls_leave_no_state,
        contract_replay.real_rollouts_replay,
        contract_replay.every_column_is_compared,
        contract_replay.replay_uses_the_action,
        contract_replay.shortcuts_are_true,
        contract_replay.referee_agrees_with_replay,
        contract_replay.hidden_state_restores_a_cut,
        contract_replay.bad_rows_give_codes,
        contract_replay.bad_actions_give_codes,
        contract_replay.empty_rollouts_are_fine,
        contract_replay.inputs_stay_untouched,
        contract_replay.open_loop_follows_real_rollouts,
        goals_keep_to_rows_that_are_ok,
        instructions_are_placed_or_refused,
        recorded_rewards_are_recomputed,
        real_rollouts_are_legal,
        rules_are_evaluated,
        tasks_make_environments,
        floors_are_counts,
        closing_twice_is_fine,
    )
}


def check_adapter(
    adapter: EnvAdapter,
    rollouts: Rollouts,
    *,
    rng: np.random.Generator,
    tolerance: Mapping[str, float] | None = None,
    laws: Sequence[str] = tuple(CONTRACT),
) -> list[Failure]:
    """Every law of the contract that the adapter breaks, empty where it keeps them all.

    An exception inside a law is a failure of that law, so one broken method hides no other finding.

    Args:
        adapter: the adapter under test; its class is called without arguments for a second instance.
        rollouts: real rollouts from resets, at least four with two transitions or more.
        rng: chooses places and bad numbers.
        tolerance: largest error of a block on real data, in the block's unit; by default 0 in exact environments and
            a hundredth of the spread of the real one-step change elsewhere.
        laws: which laws to test, by their names in `CONTRACT`.

    Raises:
        UsageError: too few rollouts.
        UnknownName: no such law.
    """
    usable = int((rollouts.length >= 2).sum())
    if usable < 4:
        raise UsageError(f"the contract needs 4 real rollouts of 2 transitions or more; found {usable}. Record more.")
    subject = Subject(adapter, rollouts, rng, tolerance)
    failures: list[Failure] = []
    for name in laws:
        if name not in CONTRACT:
            raise unknown_name("law", name, list(CONTRACT))
        try:
            for message in CONTRACT[name](subject):  # one by one, to keep what was found before an exception
                failures.append(Failure(name, message))
        except Exception as error:
            failures.append(Failure(name, f"raised {type(error).__name__}: {error}"))
    return failures
