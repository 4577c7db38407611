"""score, filter, score again: the verdicts of a filtered set are those of its source, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qualcheck.envs.babyai import BabyAI
from qualcheck.filtering import FilterResult, filter_run
from qualcheck.filters.columns import score_columns
from qualcheck.filters.decide import decide
from qualcheck.filters.pieces import ranges
from qualcheck.filters.threshold import Limits
from qualcheck.io import open_source
from qualcheck.pipeline import score
from qualcheck.table import Run

PER_STEP = ("tc", "tc_strict", "tc_error", "tc_code", "seeding", "dl", "dl_rule", "goal_share", "reward_error")
PER_ROLLOUT = (
    "task", "task_released", "instruction", "start", "length", "gc_imagined", "gc_replayed", "gc_imagined_released",
    "gc_replayed_released", "gc_code", "consistency", "consistency_replayed", "trivial", "correctness", "legality",
    "dl_row0", "dl_row0_rule", "coverage_tc", "coverage_dl", "first_fault_step", "first_divergence_step",
)  # fmt: skip
FILES = {
    "with next rows": "golden/babyai_hard.npy",
    "filler": "imagined/imag_babyai_easy.npy",
    "faults": "mutated/babyai_mutated.npy",
    "parquet": "formats/babyai_easy.parquet",
}
STRICT = {"min_correctness": 1.0, "min_legality": 1.0}


@pytest.fixture(scope="module")
def runs(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        kind: score([shared_data / name], "babyai", folder / kind.replace(" ", "-"), recheck=50)
        for kind, name in FILES.items()
    }


def same(left: Any, right: Any, name: str) -> None:
    a, b = left.to_pylist(), right.to_pylist()
    assert len(a) == len(b)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        assert x == y or (x != x and y != y), f"{name}, row {i}: {x!r} is now {y!r}"


def assert_same_steps(source: Run, result: FilterResult, again: Run) -> None:
    kept = result.pieces
    rows = ranges(source.offsets()[kept.rollout] + kept.start, kept.stop - kept.start)
    before, after = source.transitions().take(rows), again.transitions()
    for name in PER_STEP:
        same(before[name], after[name], name)
    same(before["step"], step_in_source(again, result), "step")


def step_in_source(again: Run, result: FilterResult) -> Any:
    start = np.repeat(result.pieces.start, result.pieces.stop - result.pieces.start)
    return pa.array(again.transitions(["step"])["step"].to_numpy() + start)


@pytest.mark.parametrize("like_input", [False, True], ids=["canonical", "like-input"])
@pytest.mark.parametrize("kind", FILES)
def test_whole_rollouts_keep_every_verdict(runs: dict[str, Run], tmp_path: Path, kind: str, like_input: bool) -> None:
    source = runs[kind]
    result = filter_run(source.path, tmp_path / "out", min_correctness=0.8, like_input=like_input)
    again = score([tmp_path / "out"], "babyai", tmp_path / "run", recheck=50)
    assert_same_steps(source, result, again)
    before = source.rollouts().take(result.pieces.rollout)
    for name in PER_ROLLOUT:
        same(before[name], again.rollouts()[name], name)
    more = filter_run(again.path, tmp_path / "more", min_correctness=0.8)
    assert more.report["rollouts"]["dropped"] == {}


@pytest.mark.parametrize("like_input", [False, True], ids=["canonical", "like-input"])
@pytest.mark.parametrize("mode", ["truncate", "segments"])
@pytest.mark.parametrize("kind", FILES)
def test_pieces_keep_every_verdict_and_thresholds_drop_nothing_more(
    runs: dict[str, Run], tmp_path: Path, kind: str, mode: str, like_input: bool
) -> None:
    source = runs[kind]
    for number, options in enumerate(({}, {"min_consistency": 0.5}, {"min_consistency_replayed": 1.0, **STRICT})):
        out, run = tmp_path / f"out{number}", tmp_path / f"run{number}"
        result = filter_run(source.path, out, mode=mode, like_input=like_input, **options)
        if not len(result.pieces):
            assert number
            continue
        again = score([out], "babyai", run, recheck=50)
        assert_same_steps(source, result, again)
        assert (again.transitions()["tc"].to_numpy() == 1).all()
        assert (again.transitions()["dl"].to_numpy() == 1).all()
        assert again.rollouts()["source_step"].to_pylist() == result.pieces.start.tolist()
        expected = ["reset" if start == 0 else "cut" for start in result.pieces.start]
        assert again.rollouts()["start"].to_pylist() == expected
        more = filter_run(again.path, tmp_path / f"more{number}", mode=mode, **options)
        assert more.report["rollouts"]["dropped"] == {}
        assert more.report["transitions"]["dropped"] == {}


@pytest.mark.parametrize("mode", ["truncate", "segments"])
def test_the_scores_of_a_piece_are_those_of_its_next_scoring(runs: dict[str, Run], tmp_path: Path, mode: str) -> None:

    source = runs["faults"]
    rollouts, transitions, offsets = score_columns(source, mode)
    made = decide(rollouts, transitions, offsets, mode=mode, limits=Limits(), exact=True)  # type: ignore[arg-type]
    filter_run(source.path, tmp_path / "out", mode=mode)
    again = score([tmp_path / "out"], "babyai", tmp_path / "run", recheck=50).rollouts()
    for name in ("correctness", "legality", "coverage_tc", "coverage_dl", "consistency", "consistency_replayed"):
        known = ~np.isnan(made.scores[name])
        assert known.mean() > 0.9
        assert np.array_equal(made.scores[name][known], again[name].to_numpy()[known]), name
    trivial = made.scores["trivial"]
    known = ~np.isnan(trivial)
    assert (trivial[known] == again["trivial"].to_numpy(zero_copy_only=False)[known]).all()


def test_a_last_row_that_the_file_does_not_show_ends_a_rollout_and_is_no_hole(
    shared_data: Path, tmp_path: Path
) -> None:
    keys = np.load(shared_data / "golden/babyai_hard.npy", allow_pickle=True).item()
    del keys["next_observations"]
    np.save(tmp_path / "in.npy", np.array(keys, dtype=object), allow_pickle=True)
    source = score([tmp_path / "in.npy"], "babyai", tmp_path / "run", recheck=50)
    length = source.rollouts()["length"].to_numpy()
    for number, mode in enumerate(("rollouts", "truncate", "segments")):
        for name in (f"{mode}.npy", f"{mode}.parquet"):
            result = filter_run(source.path, tmp_path / name, mode=mode, like_input=name.endswith("npy"))
            assert result.pieces.stop.tolist() == length[length > 1].tolist()  # of one step alone nothing is verified
            again = score([tmp_path / name], "babyai", tmp_path / f"run {name} {number}", recheck=50)
            assert again.manifest["results"]["inputs"][0]["last_action"] == "executed"
            assert_same_steps(source, result, again)


def test_pieces_whose_own_replay_is_not_known_are_not_kept_by_its_threshold(shared_data: Path, tmp_path: Path) -> None:
    keys = np.load(shared_data / "mutated/babyai_mutated.npy", allow_pickle=True).item()
    del keys["next_observations"]
    np.save(tmp_path / "in.npy", np.array(keys, dtype=object), allow_pickle=True)
    source = score([tmp_path / "in.npy"], "babyai", tmp_path / "run", recheck=50)
    options = {"mode": "segments", "keep_unverifiable": True, "min_consistency_replayed": 0.5}
    first = filter_run(source.path, tmp_path / "first.parquet", **options)
    again = score([tmp_path / "first.parquet"], "babyai", tmp_path / "run2", recheck=50)
    second = filter_run(again.path, tmp_path / "second.parquet", **options)
    assert 0 < len(first.pieces) == len(second.pieces)


@pytest.mark.parametrize("like_input", [False, True], ids=["canonical", "like-input"])
@pytest.mark.parametrize("mode", ["rollouts", "truncate", "segments"])
def test_two_readings_of_one_row_stay_two_readings(
    shared_data: Path, tmp_path: Path, mode: str, like_input: bool
) -> None:
    keys = np.load(shared_data / "golden/babyai_hard.npy", allow_pickle=True).item()
    rng = np.random.default_rng(0)
    for i in range(0, 200):  # the row shown next is another one, so the transition out of it starts elsewhere
        keys["observations"][i, 1 + i % 3, 13:15] = rng.integers(1, 7, 2)
        keys["next_observations"][i, 4 + i % 2, 13:15] = rng.integers(1, 7, 2)
    np.save(tmp_path / "in.npy", np.array(keys, dtype=object), allow_pickle=True)
    source = score([tmp_path / "in.npy"], "babyai", tmp_path / "run", recheck=50)
    assert source.manifest["results"]["flags"]["chain_break"] > 150
    options: dict[str, Any] = {"mode": mode, "min_consistency": 0.5, "drop_trivial": True}
    if mode == "rollouts":
        options = {"min_correctness": 0.9}
    result = filter_run(source.path, tmp_path / "out", like_input=like_input, **options)
    again = score([tmp_path / "out"], "babyai", tmp_path / "again", recheck=50)
    kept = result.pieces
    rows = ranges(source.offsets()[kept.rollout] + kept.start, kept.stop - kept.start)
    for name in ("tc", "tc_error", "dl", "dl_rule"):
        same(source.transitions()[name].take(rows), again.transitions()[name], name)
    more = filter_run(again.path, tmp_path / "more", **options)
    assert more.report["rollouts"]["dropped"] == {}


@pytest.mark.parametrize("mode", ["truncate", "segments"])
@pytest.mark.parametrize("kind", ["filler", "faults"])
def test_unverifiable_transitions_may_stay_and_stay_unverifiable(
    runs: dict[str, Run], tmp_path: Path, kind: str, mode: str
) -> None:
    source = runs[kind]
    options: dict[str, Any] = {"mode": mode, "keep_unverifiable": True, "min_consistency": 1.0}
    result = filter_run(source.path, tmp_path / "out", **options)
    again = score([tmp_path / "out"], "babyai", tmp_path / "run", recheck=50)
    assert_same_steps(source, result, again)
    assert not (again.transitions()["tc"].to_numpy() == 0).any()
    more = filter_run(again.path, tmp_path / "more", **options)
    assert more.report["rollouts"]["dropped"] == {}
    assert more.report["transitions"]["dropped"] == {}


def test_merged_inputs_keep_their_names_and_instruction_codes(shared_data: Path, tmp_path: Path) -> None:
    keys = np.load(shared_data / "formats/babyai_imaginary_hard.npy", allow_pickle=True).item()
    rng = np.random.default_rng(0)
    codes = rng.random((3, 1, 768)).astype(np.float32)
    wide = np.concatenate([keys["observations"], np.repeat(codes, 39, axis=1)], axis=2)
    np.save(tmp_path / "coded.npy", np.array({**keys, "observations": wide}, dtype=object), allow_pickle=True)
    inputs = [shared_data / "formats/babyai_easy.parquet", tmp_path / "coded.npy"]
    source = score(inputs, "babyai", tmp_path / "run", recheck=10)
    result = filter_run(source.path, tmp_path / "out.parquet", mode="segments")
    batches = list(open_source(tmp_path / "out.parquet", BabyAI().spec).batches(extras=True))
    names = [name for batch in batches for name in batch.extra_rollout["source"]]
    assert names == source.rollouts().take(result.pieces.rollout)["source"].to_pylist()
    assert set(names) == {str(path) for path in inputs}
    written = np.concatenate([batch.code for batch in batches if batch.code is not None])
    coded = result.pieces.rollout[result.pieces.rollout >= 3]  # the other input has no codes
    assert np.array_equal(written[~np.isnan(written).all(axis=1)], codes[coded - 3, 0])
    again = score([tmp_path / "out.parquet"], "babyai", tmp_path / "again", recheck=10)
    assert_same_steps(source, result, again)
    assert again.rollouts()["source_rollout"].to_pylist() == (result.pieces.rollout % 3).tolist()
