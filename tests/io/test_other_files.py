"""Other containers of the same arrays, and files that are no rollouts: told apart by content, never by name."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qualcheck.errors import DataError
from qualcheck.io import TrustedPickleWarning, open_source

TEXTS = np.array([["first", "other"], ["second", ""], ["third", ""], ["fourth", ""]])


def _hdf5(path: Path, content: dict[str, Any], **options: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, value in content.items():
            if isinstance(value, np.ndarray) and value.dtype.kind != "U":
                file.create_dataset(name, data=value, **options)
            else:
                file[name] = np.array(value).astype("S")


CONTAINERS: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    "npz": lambda path, content: np.savez(path.open("wb"), **content),
    "npz compressed": lambda path, content: np.savez_compressed(path.open("wb"), **content),
    "hdf5": _hdf5,
    "hdf5 compressed": lambda path, content: _hdf5(path, content, chunks=True, compression="gzip", shuffle=True),
    "hdf5 lzf": lambda path, content: _hdf5(path, content, chunks=True, compression="lzf"),
    **{
        f"pickle {protocol}": lambda path, content, protocol=protocol: path.write_bytes(pickle.dumps(content, protocol))
        for protocol in range(6)
    },
}


@pytest.mark.parametrize("container", list(CONTAINERS))
def test_every_container_of_the_same_arrays_gives_the_same_rollouts(
    tmp_path: Path, load: Any, keys: Any, grid: Any, container: str
) -> None:
    CONTAINERS[container](tmp_path / "anything.dat", keys(instructions=TEXTS))
    source = open_source(tmp_path / "anything.dat", grid)
    assert source.format == container.split()[0]
    (r,) = source.batches()
    _, plain = load()
    for name in ("obs", "action", "reward", "terminal", "offsets", "has_final"):
        np.testing.assert_array_equal(getattr(r, name), getattr(plain, name), err_msg=name)
    assert r.instruction == plain.instruction


def test_uncompressed_arrays_are_mapped_and_not_read(tmp_path: Path, keys: Any, grid: Any) -> None:
    for name in ("hdf5", "npz"):
        CONTAINERS[name](tmp_path / name, keys(instructions=None))
        assert isinstance(open_source(tmp_path / name, grid).keys()["observations"], np.memmap) or name == "npz"
        base = open_source(tmp_path / name, grid).keys()["observations"]
        while base is not None and not isinstance(base, np.memmap):
            base = base.base
        assert base is not None


def test_a_trusted_pickle_is_loaded_with_a_warning_and_another_is_not(tmp_path: Path, keys: Any, grid: Any) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps({**keys(), "x": Runs()}))
    with pytest.raises(DataError, match=r"mkdir.*--trust-pickle"):
        open_source(path, grid)
    assert not (tmp_path / "ran").exists()
    with pytest.warns(TrustedPickleWarning):
        open_source(path, grid, trust_pickle=True)
    assert (tmp_path / "ran").exists()


def test_files_that_are_no_rollouts_are_refused_by_what_they_are(tmp_path: Path, grid: Any) -> None:
    with h5py.File(tmp_path / "a.npy", "w") as file:
        file["observations"] = np.zeros(3)
    np.savez(tmp_path / "b.npz", states=np.zeros(3))
    (tmp_path / "c.npy").write_bytes(pickle.dumps([1, 2], 4))
    (tmp_path / "d.npy").write_bytes(b"hello")
    (tmp_path / "e.npy").write_bytes(b"")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "f.parquet")
    np.save(tmp_path / "g.npy", np.zeros(3))
    (tmp_path / "h.parquet").write_bytes(b"PAR1 and nothing more")
    (tmp_path / "i").mkdir()
    (tmp_path / "k").write_bytes(b"\x1f\x8b and so on")
    with zipfile.ZipFile(tmp_path / "l.npz", "w") as archive:
        archive.writestr("a.txt", "hello")
    expected = {
        "a.npy": "'observations' has shape (3,)",
        "b.npz": "no 'observations' among its keys (states)",
        "c.npy": "a list; expected a dict",
        "d.npy": "no layout that qualcheck knows",
        "e.npy": "an empty file",
        "f.parquet": "a Parquet file with the columns x",
        "g.npy": "an array of float64",
        "h.parquet": "not a whole Parquet file",
        "i": "a folder",
        "j": "does not exist",
        "k": "a gzip archive",
        "l.npz": "a zip archive with 'a.txt' in it",
    }
    for name, message in expected.items():
        with pytest.raises(DataError) as caught:
            open_source(tmp_path / name, grid)
        assert message in str(caught.value)
        assert name in str(caught.value)


# -- hostile archives ----------------------------------------------------------------------------------------------


def refused(path: Path, grid: Any) -> str:
    with pytest.raises(DataError) as caught:
        open_source(path, grid)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return str(caught.value)


def test_an_array_of_objects_in_an_npz_is_never_unpickled(tmp_path: Path, keys: Any, grid: Any) -> None:
    np.savez(tmp_path / "a.npz", **keys(instructions=np.array([["a"], ["b", "c"], [], []], object)))
    assert "Python objects" in refused(tmp_path / "a.npz", grid)


def test_an_npz_whose_header_lies_is_refused(tmp_path: Path, grid: Any) -> None:
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d, 5, 3), }"
    for size in (2, 10**12, 10**30):
        for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with zipfile.ZipFile(tmp_path / "a.npz", "w", how) as archive:
                archive.writestr("observations.npy", (header % size).ljust(127) + b"\n" + b"\0" * 120)
            assert "announces" in refused(tmp_path / "a.npz", grid)
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-40])
    assert "cannot be read" in refused(tmp_path / "b.npz", grid)


def test_archives_that_unpack_to_far_more_than_their_size_are_refused_unread(tmp_path: Path, grid: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("observations", (10**9, 5, 3), "f8", chunks=(1000, 5, 3), compression="gzip")
    assert "that unpack to 120,000,000,000" in refused(tmp_path / "a.h5", grid)
    archive = zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("observations.npy", "w") as stream:
        for _ in range(1100):
            stream.write(bytes(1 << 20))
    assert "that unpack to 1,153,433,600" in refused(tmp_path / "a.npz", grid)


def test_an_hdf5_file_never_leads_to_another_file(tmp_path: Path, keys: Any, grid: Any) -> None:
    other = tmp_path / "other.h5"
    _hdf5(other, keys(instructions=None))
    obs = keys()["observations"]
    (tmp_path / "raw").write_bytes(obs.tobytes())

    def external_link(file: h5py.File) -> None:
        file["observations"] = h5py.ExternalLink(str(other), "/observations")

    def soft_link(file: h5py.File) -> None:
        file["observations"] = h5py.SoftLink("/observations")

    def external_data(file: h5py.File) -> None:
        where = [(str(tmp_path / "raw"), 0, obs.nbytes)]
        file.create_dataset("observations", obs.shape, obs.dtype, external=where)

    def virtual(file: h5py.File) -> None:
        layout = h5py.VirtualLayout(obs.shape, obs.dtype)
        layout[:] = h5py.VirtualSource(str(other), "observations", obs.shape)
        file.create_virtual_dataset("observations", layout)

    def plugin(file: h5py.File) -> None:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((1, 5, 3))
        plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple(obs.shape)
        h5py.h5d.create(file.id, b"observations", h5py.h5t.IEEE_F32LE, space, plan)

    for how, message in (
        (external_link, "'observations' is a link"),
        (soft_link, "'observations' is a link"),
        (external_data, "'observations' is data in another file"),
        (virtual, "'observations' is data in another file"),
        (plugin, "compressed with the plugin 32015"),
    ):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["actions"] = keys()["actions"]
            how(file)
        assert message in refused(tmp_path / "a.h5", grid)


@pytest.mark.parametrize("container", ["hdf5", "hdf5 compressed", "npz", "npz compressed", "pickle 4"])
def test_damaged_files_are_read_alike_or_refused_in_one_line(
    tmp_path: Path, keys: Any, grid: Any, container: str
) -> None:
    path = tmp_path / "a"
    CONTAINERS[container](path, keys(instructions=None))
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    for trial in range(60):
        damaged = bytearray(whole)
        if trial % 2:
            del damaged[int(rng.integers(8, len(whole))) :]
        else:
            for place in rng.integers(8, len(whole), 20):
                damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        message = ""
        try:
            widths = {batch.obs.shape[1] for batch in open_source(path, grid).batches(extras=True)}
        except DataError as error:
            message = str(error)
        assert "\n" not in message
        assert message or widths == {3}
