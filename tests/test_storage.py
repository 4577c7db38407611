"""How numbers are stored is found from the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.storage import STORAGES, coarser_or_equal, find_storage, finer_rows, half_unit, store

ROWS = np.random.default_rng(0).normal(size=(400, 17)) * 5


@pytest.mark.parametrize("storage", STORAGES)
def test_a_storage_is_found_from_what_it_stored(storage: str) -> None:
    assert find_storage(store(ROWS, storage)) == storage


@pytest.mark.parametrize("storage", STORAGES[1:])
def test_the_dtype_of_the_file_does_not_hide_a_coarser_storage(storage: str) -> None:
    assert find_storage(store(ROWS, storage).astype(np.float32)) == storage


def test_an_array_of_half_precision_is_no_decimal_storage() -> None:
    assert find_storage(ROWS.astype(np.float16)) == "float16"
    assert find_storage(np.round(ROWS, 1).astype(np.float16)) == "1 decimals"


def test_a_few_finer_rows_do_not_decide_and_are_counted() -> None:
    rows = store(ROWS, "2 decimals")
    rows[:10, 3] += 0.003
    assert find_storage(rows) == "2 decimals"
    assert finer_rows(rows, "2 decimals") == pytest.approx(10 / 400)
    rows[:40, 3] += 0.003
    assert find_storage(rows) == "3 decimals"


def test_one_huge_number_does_not_decide() -> None:
    rows = ROWS.astype(np.float32).astype(np.float64)
    rows[3, 3] = 1e300
    assert find_storage(rows) == "float32"


def test_whole_numbers_are_the_coarsest_storage_whatever_their_dtype() -> None:
    rows = np.arange(340).reshape(20, 17)
    assert find_storage(rows) == find_storage(rows.astype(np.float32)) == "1 decimals"


def test_rows_that_are_not_finite_say_nothing() -> None:
    rows = store(ROWS, "3 decimals")
    rows[5] = np.nan
    rows[6, 0] = np.inf
    assert find_storage(rows) == "3 decimals"


def test_no_rows_are_the_finest_storage_of_their_dtype() -> None:
    assert find_storage(ROWS[:0]) == "float64"
    assert find_storage(ROWS[:0].astype(np.float32)) == "float32"


@pytest.mark.parametrize("storage", STORAGES)
def test_storing_changes_no_value_by_more_than_half_a_unit(storage: str) -> None:
    assert (np.abs(store(ROWS, storage) - ROWS) <= half_unit(ROWS, storage) * (1 + 1e-9)).all()


def test_digits_are_never_invented() -> None:
    assert coarser_or_equal("float64") == STORAGES
    assert "float64" not in coarser_or_equal("float32")
    assert coarser_or_equal("2 decimals") == ("1 decimals", "2 decimals")


def test_an_unknown_storage_is_an_error() -> None:
    with pytest.raises(ValueError, match="known: float64"):
        store(ROWS, "7 decimals")
