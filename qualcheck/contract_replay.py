"""Laws of replay: what an adapter's simulator must do with real, false and unusable rows and actions.

Each law yields a line for every way in which it is broken; `contract.check_adapter` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from qualcheck.contract_subject import Subject, differences, imagined, pieces, results, same, shapes
from qualcheck.cut import cut
from qualcheck.types import AnyArray, BoolArray, IntArray, OpenLoop, Rollouts, Trajectory

RATE = 0.99  # share of real transitions or rows that must replay where the environment is not exact
OPEN_LOOP_STEPS = 5  # how far an open-loop replay must stay true where the environment is not exact


def results_have_declared_shapes(subject: Subject) -> Iterator[str]:
    """Every array has the shape and kind of number that `qualcheck.types` gives it."""
    yield from shapes(subject.adapter, subject.rollouts)


def replay_is_deterministic(subject: Subject) -> Iterator[str]:
    """The same call gives the same answer, from a second instance as well."""
    again, second = results(subject.adapter, subject.rollouts), type(subject.adapter)()
    yield from differences(again, subject.base, "when it is asked for again")
    yield from differences(results(second, subject.rollouts), subject.base, "with a second instance of the adapter")
    second.close()


def rollouts_do_not_influence_each_other(subject: Subject) -> Iterator[str]:
    """Order, batch size and company of the rollouts do not matter."""
    n, base = subject.rollouts.n_rollouts, subject.base
    order = subject.rng.permutation(n)
    turned = results(subject.adapter, pieces(subject.rollouts, order))
    yield from differences(turned, [base[i] for i in order], "with the order of the rollouts")
    alone = [results(subject.adapter, pieces(subject.rollouts, [i]))[0] for i in range(n)]
    yield from differences(alone, base, "when the rollout comes alone")
    halves = [part for part in np.array_split(np.arange(n), 2) if len(part)]
    parts = [one for half in halves for one in results(subject.adapter, pieces(subject.rollouts, half))]
    yield from differences(parts, base, "with the size of the batch")


def calls_leave_no_state(subject: Subject) -> Iterator[str]:
    """After other rollouts of the same shape, the first ones get the same results, and so do the others afresh."""
    columns = range(subject.adapter.spec.action.size if subject.adapter.spec.action.kind == "box" else 1)
    others = replace(subject.rollouts, action=subject.other_actions(columns[-1]))
    expected = subject.base
    yield from differences(results(subject.adapter, others), results(type(subject.adapter)(), others), "after a call")
    yield from differences(results(subject.adapter, subject.rollouts), expected, "after a call with other rollouts")


def real_rollouts_replay(subject: Subject) -> Iterator[str]:
    """Real transitions have no code and end within tolerance of the best candidate."""
    replay, rollouts = subject.adapter.replay(subject.rollouts), subject.rollouts
    coded = {subject.adapter.spec.codes[code] for code in np.unique(replay.code[replay.code != 0])}
    if coded:
        yield f"real transitions are not replayed: {sorted(coded)}"
    if np.any(subject.adapter.takeable(rollouts.obs) != 0):
        yield "rows of real rollouts are not takeable"
    excess = subject.best_excess(replay.candidates, rollouts.end_obs)[rollouts.has_end]  # (M,)
    right = float(np.mean(excess <= 1))
    if right < (1.0 if subject.adapter.spec.exact else RATE):
        yield f"only {right:.1%} of real transitions are within tolerance; the worst misses by {excess.max():.3g} of it"


def every_column_is_compared(subject: Subject) -> Iterator[str]:
    """A changed number in an end row counts as an error, unless the replay says that it is not compared.

    That it may say where the environment restores a part of a row only, not of all numbers of a row, and the candidates
    then have the number that is recorded.
    """
    rollouts, spec = subject.rollouts, subject.adapter.spec
    last = np.flatnonzero(np.diff(rollouts.row_offsets) > 1)  # rollouts whose last row ends a transition
    row = rollouts.row_offsets[1:][last] - 1
    at = rollouts.offsets[:-1][last] + (row - rollouts.row_offsets[:-1][last]) - 1
    compared = subject.adapter.replay(rollouts).compared
    if compared is not None and (spec.restores != "partial" or not compared.any(axis=1).all()):
        yield "numbers are not compared, of whole rows or where the environment restores all"
    for column, name in enumerate(spec.columns):
        obs = rollouts.obs.copy()
        obs[row, column] += 1 if spec.exact else 100 * subject.tolerance[column]
        changed = replace(rollouts, obs=obs)
        replay = subject.adapter.replay(changed)
        told = np.ones(len(at), bool) if replay.compared is None else replay.compared[at, column]
        if np.any(replay.candidates[0, at[~told], column] != changed.end_obs[at[~told], column]):
            yield f"a {name} that is not compared is not the recorded one"
        excess = subject.best_excess(replay.candidates[:, at[told]], changed.end_obs[at[told]])
        if told.any() and np.mean(excess > 1) < (1.0 if spec.exact else RATE):
            yield f"a false {name} in an end row goes unnoticed"


def replay_uses_the_action(subject: Subject) -> Iterator[str]:
    """Another action, or another number in one of its columns, gives other end rows, and none before it."""
    rollouts, spec = subject.rollouts, subject.adapter.spec.action
    step = subject.rng.integers(0, np.maximum(rollouts.length, 1))  # (N,)
    at = (rollouts.offsets[:-1] + step)[rollouts.length > 0]
    before = subject.adapter.replay(rollouts)
    earlier = rollouts.step < step[rollouts.rollout]
    for column in range(spec.size) if spec.kind == "box" else [None]:
        action = rollouts.action.copy()
        action[at] = subject.other_actions(column)[at]
        after = subject.adapter.replay(replace(rollouts, action=action))
        if np.array_equal(before.candidates[:, at], after.candidates[:, at], equal_nan=True):
            yield f"no replay depends on the action{'' if column is None else f' column {column}'}"
        if not np.array_equal(before.candidates[:, earlier], after.candidates[:, earlier], equal_nan=True):
            yield "an action changes transitions before it"


def shortcuts_are_true(subject: Subject) -> Iterator[str]:
    """What is said to end, or to replay, as recorded does so, also where recorded rows are wrong."""
    rollouts = subject.rollouts
    obs = rollouts.obs.copy()
    spoilt = subject.rng.random(len(obs)) < 0.2
    obs[spoilt] = np.roll(obs, 1, axis=0)[spoilt]
    for rows in (rollouts, replace(rollouts, obs=obs)):
        replay, played = subject.adapter.replay(rows), subject.adapter.open_loop(rows)
        if replay.as_recorded is not None:
            claimed = replay.as_recorded & (replay.code == 0)
            if np.any(replay.candidates[0][claimed] != rows.end_obs[claimed]) or np.any(claimed & ~rows.has_end):
                yield "a transition said to end as recorded does not"
        if played.as_recorded is not None:
            recorded = imagined(subject.adapter, rows)
            claimed = np.repeat(played.as_recorded, np.diff(recorded.offsets)) & recorded.ok
            if np.any(played.trajectory.obs[claimed] != recorded.obs[claimed]):
                yield "a rollout said to replay as recorded does not"
        if played.apart is not None and rows.has_final.all() and _apart(played, imagined(subject.adapter, rows)).any():
            yield "a replayed row said to be the recorded one is another, or the reverse"


def _apart(played: OpenLoop, recorded: Trajectory) -> BoolArray:
    """Rows said to be the recorded ones that are not, or the reverse."""
    known = np.logical_and.reduce(np.isfinite(recorded.obs), axis=1) & played.trajectory.ok
    wrong: BoolArray = known & (played.apart != (played.trajectory.obs != recorded.obs).any(axis=1))
    return wrong


def referee_agrees_with_replay(subject: Subject) -> Iterator[str]:
    """A single step of the real simulator, out of the hidden state that the replay found, is its first candidate."""
    rollouts = subject.rollouts
    at = subject.rng.permutation(rollouts.n_transitions)[:200]
    replay = subject.adapter.replay(rollouts)
    hidden = None if replay.hidden is None else replay.hidden[at]
    end, code = subject.adapter.referee(rollouts.start_obs[at], rollouts.action[at], hidden=hidden)
    if np.any(code != 0):
        yield "the referee refuses real rows"
    good = (code == 0) & (replay.code[at] == 0)
    excess = subject.excess(replay.candidates[0, at[good]], end[good])
    if np.any(excess > 1):
        yield f"{int(np.sum(excess > 1))} of {int(good.sum())} steps of the simulator are not those of the replay"


def hidden_state_restores_a_cut(subject: Subject) -> Iterator[str]:
    """A piece that carries the hidden state it starts with is replayed as it was in its rollout, right or wrong."""
    if not subject.adapter.spec.hidden:
        return
    rollouts, rng = subject.rollouts, subject.rng
    obs = rollouts.obs.copy()
    spoilt = rng.random(len(obs)) < 0.1
    obs[spoilt] = np.roll(obs, 1, axis=0)[spoilt]
    for whole in (rollouts, replace(rollouts, obs=obs)):
        replay = subject.adapter.replay(whole)
        long = np.flatnonzero(whole.length > 1)
        start = rng.integers(1, whole.length[long])
        begins = whole.offsets[:-1][long] + start
        known = replay.code[begins] == 0
        long, start, begins = long[known], start[known], begins[known]
        piece = replace(cut(whole, long, start, whole.length[long]), hidden=replay.hidden[begins])  # type: ignore[index]
        again = subject.adapter.replay(piece)
        at = np.arange(piece.n_transitions) + np.repeat(begins - piece.offsets[:-1], piece.length)
        for name, one, other in (
            ("a candidate", again.candidates, replay.candidates[:, at]),
            ("a code", again.code, replay.code[at]),
            ("a situation", again.situation, None if replay.situation is None else replay.situation[at]),
            ("a hidden state", again.hidden, replay.hidden[at]),  # type: ignore[index]
        ):
            if other is not None and not np.array_equal(np.asarray(one), other, equal_nan=True):
                yield f"a cut with its hidden state has {name} that its rollout has not"


def spoil(array: AnyArray, at: IntArray, value: float, first: int) -> AnyArray:
    """A wide copy with a bad number at the places given, in the columns in turn from the given one on."""
    wide = array.astype(np.float64 if array.dtype.kind == "f" or isinstance(value, float) else np.int64)
    with np.errstate(over="ignore"):
        if wide.ndim == 1:
            wide[at] = value
        else:
            wide[at, (np.arange(len(at)) + first) % wide.shape[1]] = value
    return wide


def _unharmed(subject: Subject, spoilt: Rollouts, victim: BoolArray, what: str) -> Iterator[str]:
    """The other rollouts keep their results, and what is replayed at all is finite."""
    found = results(subject.adapter, spoilt)
    safe = np.flatnonzero(~victim)
    yield from differences([found[i] for i in safe], [subject.base[i] for i in safe], f"with {what} in another rollout")
    replay = subject.adapter.replay(spoilt)
    if not np.isfinite(replay.candidates[0, replay.code == 0]).all():
        yield f"{what}: a transition without a code has a first candidate that is not finite"


def bad_rows_give_codes(subject: Subject) -> Iterator[str]:
    """No number in a row raises; a row that is not finite has a code, and goals are false on it."""
    rollouts, spec = subject.rollouts, subject.adapter.spec
    victim = (np.arange(rollouts.n_rollouts) % 2 == 1) & (rollouts.length > 0)
    step = subject.rng.integers(0, np.maximum(rollouts.length, 1))
    row, at = (rollouts.row_offsets[:-1] + step)[victim], (rollouts.offsets[:-1] + step)[victim]
    for value in (np.nan, np.inf, -np.inf, 1e300, -1e6, 0.5):
        for first in range(0, spec.obs_size, max(1, len(row))):
            spoilt = replace(rollouts, obs=spoil(rollouts.obs, row, value, first))
            yield from _unharmed(subject, spoilt, victim, f"{value:g}")
            if np.isfinite(value):
                continue
            if np.any(subject.adapter.takeable(spoilt.obs)[row] == 0):
                yield f"{value} in a row has no code in takeable"
            if np.any(subject.adapter.replay(spoilt).code[at] == 0):
                yield f"{value} in a row has no code in replay"


def bad_actions_give_codes(subject: Subject) -> Iterator[str]:
    """No action raises; one that is not finite, or none of a discrete set, has a code."""
    rollouts, spec = subject.rollouts, subject.adapter.spec.action
    victim = (np.arange(rollouts.n_rollouts) % 2 == 1) & (rollouts.length > 0)
    at = (rollouts.offsets[:-1] + subject.rng.integers(0, np.maximum(rollouts.length, 1)))[victim]
    values = (np.nan, np.inf) if spec.kind == "box" else (-1, spec.size, 10**6, np.nan, 0.5)
    for value in values:
        spoilt = replace(rollouts, action=spoil(rollouts.action, at, value, 0))
        yield from _unharmed(subject, spoilt, victim, f"action {value}")
        if np.any(subject.adapter.replay(spoilt).code[at] == 0):
            yield f"action {value} has no code in replay"
        if np.any(subject.adapter.open_loop(spoilt).code[victim] == 0):
            yield f"action {value} has no code in open_loop"


def empty_rollouts_are_fine(subject: Subject) -> Iterator[str]:
    """No rollouts, rollouts without transitions and rollouts without rows are answered with arrays of their size."""
    rollouts, n = subject.rollouts, subject.rollouts.n_rollouts
    yield from shapes(subject.adapter, pieces(rollouts, []))
    none = np.zeros(n, np.int64)
    lone = cut(rollouts, np.arange(n), none, none)
    yield from shapes(subject.adapter, lone)
    yield from shapes(subject.adapter, replace(lone, obs=lone.obs[:0], has_final=np.zeros(n, bool)))
    kept = np.arange(n) % 2 == 0
    mixed = results(subject.adapter, cut(rollouts, np.arange(n), none, np.where(kept, rollouts.length, 0)))
    at = np.flatnonzero(kept)
    yield from differences([mixed[i] for i in at], [subject.base[i] for i in at], "beside rollouts without transitions")


def inputs_stay_untouched(subject: Subject) -> Iterator[str]:
    """No call writes into the arrays it is given."""
    rollouts = pieces(subject.rollouts, np.arange(subject.rollouts.n_rollouts))
    names = [part.name for part in fields(rollouts)] + ["start_obs", "end_obs", "context_obs", "length", "row"]
    arrays = {name: getattr(rollouts, name) for name in names if isinstance(getattr(rollouts, name), np.ndarray)}
    before = {name: array.copy() for name, array in arrays.items()}
    results(subject.adapter, rollouts)
    for name, array in arrays.items():
        if not same(array, before[name]):
            yield f"Rollouts.{name} was written to"
        array.setflags(write=False)
    yield from differences(results(subject.adapter, rollouts), subject.base, "when the arrays are read-only")


def open_loop_follows_real_rollouts(subject: Subject) -> Iterator[str]:
    """From row 0, recorded actions lead through the recorded rows: all of them where exact, else the first few."""
    rollouts, spec = subject.rollouts, subject.adapter.spec
    played, rows = subject.adapter.open_loop(rollouts), imagined(subject.adapter, rollouts)
    if np.any(played.code != 0):
        yield "real rollouts have a code"
    step = np.arange(len(rows.obs)) - np.repeat(rows.offsets[:-1], np.diff(rows.offsets))
    near = rows.ok & (spec.exact | (step <= OPEN_LOOP_STEPS))
    if not played.trajectory.ok[near].all():
        yield "rows of the open-loop replay of real rollouts are not ok"
    allowed = 1.0 if spec.exact else OPEN_LOOP_STEPS  # errors add up along the way
    wrong = near & (subject.excess(played.trajectory.obs, rows.obs) > allowed)
    if np.mean(wrong[near]) > (0 if spec.exact else 1 - RATE):
        yield f"{int(wrong.sum())} of {int(near.sum())} rows leave the recording"
