"""What `filter` keeps is what was scored: same verdicts, nothing more dropped, readable by other readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

SOURCES = ("imagined/imag_babyai_easy.npy", "imagined/imag_babyai_rephrase.npy", "mutated/babyai_mutated.npy")
THRESHOLDS = {
    "rollouts": ("--min-correctness", 0.9, "--min-legality", 0.95),
    "truncate": ("--min-correctness", 1, "--min-legality", 1),
    "segments": ("--min-correctness", 1, "--min-legality", 1),
}


def _filter(qualcheck: Any, run: Path, out: Path, *options: object) -> dict[str, Any]:
    done = qualcheck("filter", run, *options, "--json", "-o", out)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _adds_up(said: dict[str, Any], run: Any) -> None:
    for what, total in (("rollouts", len(run.r["rollout"])), ("transitions", len(run.t["tc"]))):
        count = said[what]
        assert count["all"] == total
        assert count["kept"] + sum(count["dropped"].values()) == total
        assert all(reason and n > 0 for reason, n in count["dropped"].items())


def _equal_row_by_row(piece: Any, source: Any) -> None:
    first = np.concatenate([[0], np.cumsum(source.r["length"])])
    here = piece.t["rollout"]
    row = first[piece.r["source_rollout"][here]] + piece.r["source_step"][here] + piece.t["step"]
    assert len(set(row.tolist())) == len(row)
    for name in ("tc", "tc_error", "dl", "reward_error"):
        assert np.array_equal(piece.t[name], source.t[name][row], equal_nan=True), name
    for name in ("tc_code", "dl_rule"):
        assert np.array_equal(piece.t[name], source.t[name][row]), name
    at = piece.r["source_rollout"]
    assert np.array_equal(piece.r["instruction"], source.r["instruction"][at])
    assert np.array_equal(piece.r["task"], source.r["task"][at])


@pytest.mark.parametrize("mode", THRESHOLDS)
@pytest.mark.parametrize("name", SOURCES)
def test_scoring_what_was_kept_gives_the_verdicts_of_the_source(
    name: str, mode: str, scored: Any, qualcheck: Any, tmp_path: Path
) -> None:
    run, _ = scored(name)
    options = ("--mode", mode, *THRESHOLDS[mode])
    said = _filter(qualcheck, run.path, tmp_path / "kept.parquet", *options)
    _adds_up(said, run)
    assert 0 < said["transitions"]["kept"] < said["transitions"]["all"]
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept.parquet")
    assert len(again.t["tc"]) == said["transitions"]["kept"]
    assert len(again.r["rollout"]) == said["pieces"]
    _equal_row_by_row(again, run)
    if mode == "rollouts":
        for column in ("gc_imagined", "gc_replayed", "gc_imagined_released", "consistency", "trivial", "dl_row0"):
            assert np.array_equal(again.r[column], run.r[column][again.r["source_rollout"]], equal_nan=True), column
    else:
        assert (again.t["tc"] == 1).all()
        assert (again.t["dl"] == 1).all()
    twice = _filter(qualcheck, again.path, tmp_path / "twice.parquet", *options)
    assert twice["transitions"]["dropped"] == {}
    assert twice["rollouts"]["dropped"] == {}
    assert twice["transitions"]["kept"] == said["transitions"]["kept"]


@pytest.mark.parametrize("mode", THRESHOLDS)
def test_a_goal_threshold_is_idempotent_in_every_mode(mode: str, scored: Any, qualcheck: Any, tmp_path: Path) -> None:
    run, _ = scored("imagined/imag_babyai_rephrase.npy")
    options = ("--mode", mode, "--min-consistency", 1, "--min-correctness", 1, "--min-consistency-replayed", 1)
    said = _filter(qualcheck, run.path, tmp_path / "kept.parquet", *options)
    _adds_up(said, run)
    assert said["rollouts"]["dropped"]
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept.parquet")
    assert (again.r["consistency"] == 1).all()
    twice = _filter(qualcheck, again.path, tmp_path / "twice.parquet", *options)
    assert twice["transitions"]["dropped"] == {}
    _equal_row_by_row(qualcheck.score(tmp_path / "third", tmp_path / "twice.parquet"), run)


def test_thresholds_are_inclusive_and_on_the_rollout_columns(scored: Any, qualcheck: Any, tmp_path: Path) -> None:
    run, _ = scored("imagined/imag_babyai_easy.npy")
    bar = float(np.unique(run.r["correctness"][~np.isnan(run.r["correctness"])])[-3])
    _filter(qualcheck, run.path, tmp_path / "kept.parquet", "--min-correctness", repr(bar))
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept.parquet")
    r = run.r
    with np.errstate(invalid="ignore"):
        want = (r["correctness"] >= np.float32(bar)) & (r["coverage_tc"] >= 0.5) & (r["coverage_dl"] >= 0.5)
    assert np.array_equal(np.unique(again.r["source_rollout"]), np.flatnonzero(want))


def test_trivial_and_unverifiable_rollouts_go_or_stay_as_asked(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, world: Any, tmp_path: Path
) -> None:
    near = world.ROW0.copy()
    near[4:6] = 2, 4
    hole = np.ones(10)
    hole[4] = 0
    episodes = [
        episode(tour),
        episode((2, 2), near, instruction="put the green box next to the blue ball"),
        episode(tour, mask=hole, instruction="walk to the blue ball"),
        episode(tour, instruction="what is this"),
    ]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays(episodes)))
    wanted = {
        (): {0, 1},
        ("--drop-trivial",): {0},
        ("--keep-unverifiable", "--min-coverage", 0): {0, 1, 2, 3},
        ("--min-coverage", 0): {0, 1},
    }
    for i, (options, keep) in enumerate(wanted.items()):
        out = tmp_path / f"kept{i}.parquet"
        said = _filter(qualcheck, run.path, out, "--min-consistency", 0, "--min-correctness", 0, *options)
        assert set(pq.read_table(out)["source_rollout"].to_pylist()) == keep, options
        _adds_up(said, run)


def test_canonical_output_has_the_documented_columns_and_the_rows_of_the_source(
    scored: Any, qualcheck: Any, tmp_path: Path
) -> None:
    run, content = scored("mutated/babyai_mutated.npy")
    _filter(qualcheck, run.path, tmp_path / "kept.parquet", "--min-correctness", 0.95)
    table = pq.read_table(tmp_path / "kept.parquet")
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    wanted = ("rollout", "step", "obs", "action", "reward", "terminal", "truncated", "next_obs", "instruction", "task")
    for name in (*wanted, "level", "generator", "source", "source_rollout", "source_step", "start"):
        assert name in kinds, name
    assert kinds["obs"].startswith("fixed_size_list<")
    assert kinds["obs"].endswith("float>[17]")
    assert kinds["action"] == "int64"
    assert kinds["instruction"].startswith("dictionary<values=string")
    assert b"qualcheck.schema" in pq.read_metadata(tmp_path / "kept.parquet").metadata
    assert b"qualcheck.schema" in (pq.read_schema(tmp_path / "kept.parquet").metadata or {})
    assert "x_fault" in kinds
    assert "x_fault_step" in kinds
    at, step = np.array(table["source_rollout"]), np.array(table["step"])
    assert np.array_equal(np.stack(table["obs"].to_pylist()), content["observations"][at, step])
    assert np.array_equal(np.array(table["action"]), content["actions"][at, step])
    assert np.allclose(np.array(table["reward"]), content["rewards"][at, step, 0])
    assert np.array_equal(np.array(table["terminal"]), content["terminals"][at, step, 0])
    following = table["next_obs"].to_pylist()
    obs, rollout = table["obs"].to_pylist(), table["rollout"].to_pylist()
    for i, row in enumerate(following):
        last = i + 1 == len(rollout) or rollout[i + 1] != rollout[i]
        assert row is not None or not last
        assert row is None or last or row != obs[i + 1]
        assert (obs[i + 1] if row is None else row) == content["next_observations"][at[i], step[i]].tolist()


def test_pieces_say_whether_they_start_at_a_reset_or_at_a_cut(scored: Any, qualcheck: Any, tmp_path: Path) -> None:
    run, _ = scored("mutated/babyai_mutated.npy")
    _filter(qualcheck, run.path, tmp_path / "kept.parquet", "--mode", "segments", "--min-correctness", 1)
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept.parquet")
    assert np.array_equal(again.r["start"] == "reset", again.r["source_step"] == 0)
    assert set(again.r["start"]) == {"reset", "cut"}
    cut = again.r["source_step"] > 0
    assert np.isnan(again.r["dl_row0"][cut]).all()


def test_level_and_generator_travel_with_the_kept_rollouts(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    path = bench.npy(tmp_path / "a.npy", bench.arrays([episode(tour), episode(tour[:4])]))
    run = qualcheck.score(tmp_path / "run", path, options=["--level", "hard", "--generator", "llama2"])
    assert (run.r["level"][0], run.r["generator"][0]) == ("hard", "llama2")
    _filter(qualcheck, run.path, tmp_path / "kept.parquet", "--min-correctness", 1)
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept.parquet")
    assert list(zip(again.r["level"], again.r["generator"], strict=True)) == [("hard", "llama2")] * 2


@pytest.mark.parametrize("name", ["golden/babyai_easy.npy", "imagined/imag_babyai_easy.npy"])
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_like_input_is_read_by_an_independent_reader_and_is_bit_equal(
    kind: str, name: str, scored: Any, qualcheck: Any, bench: Any, tmp_path: Path
) -> None:
    before, content = scored(name)
    few = {key: value[:300] for key, value in content.items()}
    few["observation_type"] = few["observations"][:, :, 0] * 0 + 7  # a key that no reader knows
    few = {"extra_numbers" if key == "observation_type" else key: value for key, value in few.items()}
    if kind == "npy":
        source = bench.npy(tmp_path / "in.npy", few)
    else:
        few["task_str"] = [[text] for text in few["task_str"]]
        order = np.random.default_rng(5).permutation(300)
        source = bench.parquet(tmp_path / "in.parquet", few, order)
    run = qualcheck.score(tmp_path / "run", source)
    options = ("--min-consistency", 1, "--min-correctness", 0.8)
    out = tmp_path / f"out.{kind}"
    said = _filter(qualcheck, run.path, out, *options, "--like-input")
    r = run.r
    with np.errstate(invalid="ignore"):
        want = (r["consistency"] >= 1) & (r["correctness"] >= 0.8) & (r["coverage_tc"] >= 0.5)
    kept = np.flatnonzero(want)
    assert 0 < len(kept) < 300
    assert said["rollouts"]["kept"] == len(kept)
    got = np.load(out, allow_pickle=True).item() if kind == "npy" else bench.read_parquet(out)
    assert set(few) <= set(got)
    assert all(key.startswith("qualcheck_") for key in set(got) - set(few))
    for key, value in few.items():
        if isinstance(value, np.ndarray):
            assert got[key].dtype == value.dtype, key
            assert np.array_equal(got[key], value[kept], equal_nan=value.dtype.kind == "f"), key
        else:
            assert [list(np.atleast_1d(x)) for x in got[key]] == [list(np.atleast_1d(value[i])) for i in kept], key
    last = ("--last-action", "filler") if "next_observations" not in few else ()
    again = qualcheck.score(tmp_path / "again", out, options=last)
    first = np.concatenate([[0], np.cumsum(run.r["length"])])
    row = np.concatenate([np.arange(first[i], first[i + 1]) for i in kept])
    for column in ("tc", "dl", "reward_error"):
        assert np.array_equal(again.t[column], run.t[column][row], equal_nan=True), column
    for column in ("tc_code", "dl_rule"):
        assert np.array_equal(again.t[column], run.t[column][row]), column
    if kind == "parquet":
        assert {row["row_index"] for row in pq.read_table(out).to_pylist()} == set(range(len(kept)))
        assert set(pq.read_table(source).column_names) <= set(pq.read_table(out).column_names)
    assert before.path != run.path


@pytest.mark.parametrize("mode", ["truncate", "segments"])
@pytest.mark.parametrize("name", ["mutated/babyai_mutated.npy", "imagined/imag_babyai_easy.npy"])
def test_like_input_of_pieces_keeps_the_verdicts_or_is_refused(
    name: str, mode: str, scored: Any, qualcheck: Any, tmp_path: Path
) -> None:
    run, _ = scored(name)
    out = tmp_path / "out.npy"
    done = qualcheck("filter", run.path, "--mode", mode, "--min-correctness", 1, "--like-input", "--json", "-o", out)
    if done.returncode == 0:
        said = json.loads(done.stdout)
        again = qualcheck.score(tmp_path / "again", out)
        assert len(again.t["tc"]) == said["transitions"]["kept"] < said["transitions"]["all"]
        assert len(again.r["rollout"]) == said["pieces"]
        assert (again.t["tc"] == 1).all()
        assert (again.t["dl"] == 1).all()
        assert np.nanmax(np.abs(again.t["reward_error"])) < 1e-5
    else:
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert not out.exists()


def test_filter_says_how_many_kept_rollouts_fail_the_replay(scored: Any, qualcheck: Any, tmp_path: Path) -> None:
    run, _ = scored("imagined/imag_babyai_rephrase.npy")
    done = qualcheck("filter", run.path, "--min-consistency", 1, "-o", tmp_path / "kept.parquet")
    r = run.r
    kept = (r["consistency"] == 1) & (r["coverage_tc"] >= 0.5)
    fail = int((r["gc_replayed"][kept] == 0).sum())
    assert fail > 0
    line = next(line for line in done.stdout.splitlines() if "replay" in line)
    assert str(fail) in line
    assert str(int(kept.sum())) in line


def test_two_inputs_are_filtered_as_one_set(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    one = bench.npy(tmp_path / "one.npy", bench.arrays([episode(tour), episode(tour[:4])]))
    bad = episode(tour)
    bad.rows[3, 13] = 6
    two = bench.npy(tmp_path / "two.npy", bench.arrays([bad, episode(tour[:7])]))
    run = qualcheck.score(tmp_path / "run", one, two)
    said = _filter(qualcheck, run.path, tmp_path / "kept.parquet", "--min-correctness", 1)
    assert said["rollouts"]["kept"] == 3
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept.parquet")
    assert [Path(text).name for text in again.r["source"]] == ["one.npy", "one.npy", "two.npy"]
    assert list(again.r["source_rollout"]) == [0, 1, 1]
    assert list(again.r["length"]) == [10, 4, 7]


@pytest.mark.parametrize("layout", ["canonical", "like_input"])
def test_defective_rollouts_that_are_kept_stay_defective_in_the_same_way(
    layout: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, world: Any, tmp_path: Path
) -> None:
    hole = np.ones(10)
    hole[4] = 0
    rows = world.play(world.ROW0, tour)
    broken = rows[1:].copy()
    broken[3] = world.step(rows[3], 0)
    episodes = [
        episode(tour),
        episode(tour, mask=hole, instruction="walk to the blue ball"),
        episode(tour, instruction=""),
        episode(tour, instruction="what is this"),
        episode(tour, next_rows=broken, instruction="reach the blue ball"),
        episode(tour, instruction="get to the blue ball"),
        episode(tour, instruction="move to the blue ball"),
        episode(tour[:9], instruction="approach the blue ball"),
    ]
    episodes[5].rows[4] = np.nan
    episodes[6].actions[2] = 9
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays(episodes)))
    options = ["--keep-unverifiable", "--min-coverage", 0, *(["--like-input"] if layout == "like_input" else [])]
    said = _filter(qualcheck, run.path, tmp_path / "kept", *options)
    assert said["rollouts"]["dropped"] == {}
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept")
    for name in ("tc", "tc_error", "dl", "reward_error"):
        assert np.array_equal(again.t[name], run.t[name], equal_nan=True), name
    for name in ("rollout", "step", "tc_code", "dl_rule"):
        assert np.array_equal(again.t[name], run.t[name]), name
    for name in ("gc_imagined", "gc_replayed", "coverage_tc", "correctness", "dl_row0"):
        assert np.array_equal(again.r[name], run.r[name], equal_nan=True), name
    assert list(again.r["gc_code"]) == list(run.r["gc_code"])
    assert [set(flags) for flags in again.r["flags"]] == [set(flags) for flags in run.r["flags"]]


def test_a_quantile_filter_applied_again_drops_nothing_more(scored: Any, qualcheck: Any, tmp_path: Path) -> None:
    run, _ = scored("imagined/imag_babyai_easy.npy")
    options = ("--top-fraction", 0.5)
    said = _filter(qualcheck, run.path, tmp_path / "kept.parquet", *options)
    _adds_up(said, run)
    assert 0 < said["rollouts"]["kept"] < said["rollouts"]["all"]
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept.parquet")
    twice = _filter(qualcheck, again.path, tmp_path / "twice.parquet", *options)
    assert twice["rollouts"]["dropped"] == {}


def test_files_scored_together_get_the_verdicts_they_get_alone(
    scored: Any, qualcheck: Any, shared_data: Path, tmp_path: Path
) -> None:
    names = ("mutated/babyai_mutated.npy", "imagined/imag_babyai_easy.npy")
    both = qualcheck.score(tmp_path / "run", *(shared_data / name for name in names))
    alone = [scored(name)[0] for name in names]
    for column in ("step", "tc", "tc_code", "dl", "dl_rule", "reward_error"):
        want = np.concatenate([run.t[column] for run in alone])
        got = both.t[column]
        same = np.array_equal(got, want, equal_nan=True) if got.dtype.kind == "f" else np.array_equal(got, want)
        assert same, column
    for column in ("gc_imagined", "gc_replayed", "consistency", "trivial", "length", "source_rollout"):
        assert np.array_equal(both.r[column], np.concatenate([run.r[column] for run in alone])), column
