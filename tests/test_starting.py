"""Files of start rows are counted and judged in every environment, and other files refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from qualcheck.cli.app import app
from qualcheck.envs.clevr import reset as clevr
from qualcheck.envs.halfcheetah.reset import sample_states
from qualcheck.errors import DataError, UnknownName, UsageError
from qualcheck.starting import inspect_starts, starts_facts


def test_rows_of_a_reset_are_counted_and_lawful(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cheetah = sample_states(30, rng)
    for env, rows in (("clevr", clevr.sample(30, rng)), ("halfcheetah", cheetah)):
        rows[7] = rows[3]
        rows[9] = rows[3] + 1e-9
        np.savez(tmp_path / f"{env}.npz", observations=rows)
        found = inspect_starts(tmp_path / f"{env}.npz", env)
        assert (found.n_rows, found.unique, found.unique_close, found.n_broken) == (30, 29, 28, 0), env


def test_each_fault_of_a_start_is_named_with_its_row(tmp_path: Path) -> None:
    rows = clevr.sample(6, np.random.default_rng(1))
    rows[2, 0] = np.nan
    rows[4, 0] = 3
    rows[5] = [-0.4, 0.4, -0.3, 0.2, 0.4, -0.1, -0.2, -0.2, 0.1, 0.1]  # red and blue nearer than a reset puts them
    np.save(tmp_path / "rows.npy", rows)
    found = starts_facts(inspect_starts(tmp_path / "rows.npy", "clevr"))
    assert found["rules"] == {
        "non_finite_row": {"rows": 1, "first": 2},
        "outside_walls": {"rows": 1, "first": 4},
        "row0.spacing": {"rows": 1, "first": 5},
    }
    assert found["rows_that_break_a_law"] == 3


def test_the_command_prints_text_or_json(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", clevr.sample(4, np.random.default_rng(2)))
    told = ["inspect", "--starts", str(tmp_path / "rows.npy"), "--env", "clevr"]
    silent = CliRunner().invoke(app, told[:3]).exception
    assert isinstance(silent, UsageError)
    assert "needs --env" in str(silent)
    shown = CliRunner().invoke(app, told)
    assert shown.exit_code == 0
    assert "4 rows, 4 different, 4 at 1e-6" in shown.output
    assert json.loads(CliRunner().invoke(app, [*told, "--json"]).output)["rows"] == 4


def test_other_files_and_names_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "key.npz", rows=np.zeros((3, 10)))
    np.savez(tmp_path / "shape.npz", observations=np.zeros((3, 17)))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("no array")
    for name, words in (
        ("key.npz", "no key"),
        ("shape.npz", "shape"),
        ("objects.npy", "not a file"),
        ("text.npy", "not a file"),
        ("missing.npz", "no such file"),
    ):
        with pytest.raises(DataError, match=words):
            inspect_starts(tmp_path / name, "clevr")
    np.save(tmp_path / "none.npy", np.zeros((0, 10)))
    assert inspect_starts(tmp_path / "none.npy", "clevr").n_rows == 0
    with pytest.raises(UnknownName, match="juggle"):
        inspect_starts(tmp_path / "none.npy", "clevr", task="juggle")
