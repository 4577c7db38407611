"""Shards that are merged are the run in one go, byte for byte, and nothing else is taken for one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import qualcheck
from qualcheck.errors import DataError, UsageError
from qualcheck.sharding import Share, merge, score_shard

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qualcheck.scorepass.batch_size", lambda adapter: 300)
    monkeypatch.setattr("qualcheck.pipeline.batch_size", lambda adapter: 300)


def _bytes(run: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in run.iterdir() if path.suffix == ".parquet"}
    return {**found, "results": json.dumps(json.loads((run / "manifest.json").read_text())["results"]).encode()}


def _shards(folder: Path, of: int, **more: Any) -> list[Path]:
    return [
        score_shard([SHIPPED], "babyai", folder / f"{number}", f"{number}/{of}", **more) for number in range(1, of + 1)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return _bytes(qualcheck.score(SHIPPED, env="babyai", out=tmp_path_factory.mktemp("whole") / "run").path)


@pytest.mark.parametrize("of", [1, 3, 40])  # more shards than batches
def test_merged_shards_have_the_bytes_of_one_run(of: int, tmp_path: Path, whole: dict[str, bytes]) -> None:
    folders = _shards(tmp_path, of)
    run = merge(folders[::-1], tmp_path / "run")
    assert _bytes(run.path) == whole
    assert {path.name for path in tmp_path.iterdir()} == {"run", *(folder.name for folder in folders)}


def test_references_samples_and_other_options_go_through_shards(tmp_path: Path) -> None:
    options: dict[str, Any] = {"sample": 150, "level": "hard", "seed": 3, "reference": [SHIPPED]}
    run = merge(_shards(tmp_path, 2, **options), tmp_path / "run")
    want = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "want", **options)
    assert _bytes(run.path) == _bytes(want.path)
    assert (run.path / "reference/transitions.parquet").read_bytes() == (
        want.path / "reference/transitions.parquet"
    ).read_bytes()


def test_a_continuous_environment_in_shards(tmp_path: Path) -> None:
    qualcheck.collect("halfcheetah", "hard", 4, tmp_path / "h.parquet", random_share=0.3, seed=1)
    folders = [
        score_shard([tmp_path / "h.parquet"], "halfcheetah", tmp_path / f"{i}", f"{i}/2", workers=i) for i in (1, 2)
    ]
    want = qualcheck.score(tmp_path / "h.parquet", env="halfcheetah", out=tmp_path / "want")
    assert _bytes(merge(folders, tmp_path / "run").path) == _bytes(want.path)


def test_a_shard_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes]
) -> None:
    from qualcheck.journal import Journal

    kept, done = Journal.save, []

    def save(self: Journal, *args: Any) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        kept(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "save", save)
        with pytest.raises(KeyboardInterrupt):
            score_shard([SHIPPED], "babyai", tmp_path / "1", "1/2")
    assert [path.name[:10] for path in tmp_path.iterdir()] == [".1.pieces-"]
    calls = []
    monkeypatch.setattr(Journal, "save", lambda self, job, piece: (calls.append(job.number), kept(self, job, piece)))
    folders = [score_shard([SHIPPED], "babyai", tmp_path / f"{i}", f"{i}/2", resume=True) for i in (1, 2)]
    assert _bytes(merge(folders, tmp_path / "run").path) == whole


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1.0/2", "1/ 2", "²/2"])
def test_shares_that_make_no_sense_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--shard"):
        Share.read(text)
    with pytest.raises(UsageError, match="--shard"):
        score_shard([SHIPPED], "babyai", tmp_path / "x", text)
    assert not list(tmp_path.iterdir())


def test_every_batch_is_in_exactly_one_share() -> None:
    for of in (1, 2, 7):
        shares = [Share(number, of) for number in range(1, of + 1)]
        assert all(sum(share.has(batch) for share in shares) == 1 for batch in range(50))


def test_what_is_no_whole_set_of_shards_is_refused(tmp_path: Path) -> None:
    one, two, three = _shards(tmp_path, 3)
    (tmp_path / "other").mkdir()
    other = _shards(tmp_path / "other", 3, seed=5)
    copy = tmp_path / "copy"
    shutil.copytree(two, copy)
    for folders, message in (
        ([one, three], r"of 3 shards 2 is missing"),
        ([one], r"of 3 shards 2, 3 are missing"),
        ([one, two, three, copy], r"copy: shard 2/3, which .*2 is as well"),
        ([one, other[1], three], r"of another run than .*1: options, content"),
        ([one, two, tmp_path / "nothing"], r"nothing: not the folder of a finished shard"),
        ([one, two, tmp_path], r"not the folder of a finished shard"),
    ):
        with pytest.raises(DataError, match=message):
            merge(folders, tmp_path / "run")
    with pytest.raises(UsageError, match="needs the folders"):
        merge([], tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("harm", ["cut", "gone", "flipped", "of another batch"])
def test_a_damaged_piece_is_named_and_nothing_is_guessed(harm: str, tmp_path: Path) -> None:
    folders = _shards(tmp_path, 2)
    piece = sorted((folders[1] / "inputs").iterdir())[1]
    content = piece.read_bytes()
    if harm == "cut":
        piece.write_bytes(content[:-7])
    elif harm == "gone":
        piece.unlink()
    elif harm == "flipped":
        piece.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    else:
        piece.write_bytes(sorted((folders[1] / "inputs").iterdir())[0].read_bytes())
    with pytest.raises(DataError, match=rf"{piece.name}: missing or damaged. Make shard 2/2 again"):
        merge(folders, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": 1, "shard": [1, 1]}',
        '{"format": 1, "shard": 3}',
        '{"format": 1, "shard": null}',
    ],
)
def test_a_damaged_head_is_refused(text: str, tmp_path: Path) -> None:
    (folder,) = _shards(tmp_path, 1)
    (folder / "shard.json").write_text(text)
    with pytest.raises(DataError, match="shard"):
        merge([folder], tmp_path / "run")


def test_inputs_that_changed_since_are_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.parquet"
    shutil.copy(SHIPPED, mine)
    folder = score_shard([mine], "babyai", tmp_path / "1", "1/1")
    qualcheck.collect("babyai", "real", 2, tmp_path / "new.parquet")
    shutil.move(tmp_path / "new.parquet", mine)
    with pytest.raises(DataError, match="not the ones that the shards were made with"):
        merge([folder], tmp_path / "run")
    mine.unlink()
    with pytest.raises(DataError, match=r"no such file\. The shards were made in"):
        merge([folder], tmp_path / "run")


def test_options_that_no_shard_can_keep_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--target-width"):
        score_shard([SHIPPED], "babyai", tmp_path / "1", "1/2", target_width=0.1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(UsageError, match="exists already"):
        score_shard([SHIPPED], "babyai", tmp_path / "full", "1/2")
