"""Files that are not what they seem: nothing runs, nothing is written, one line says why."""

from __future__ import annotations

import gzip
import pickle
import pickletools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def _text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _name(name: str) -> bytes:
    """GLOBAL: module and attribute, split at the colon."""
    module, attribute = name.split(":")
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def _stack_name(name: str) -> bytes:
    """STACK_GLOBAL: attribute may hold dots."""
    module, attribute = name.split(":")
    return _text(module) + _text(attribute) + b"\x93"


def _call(function: bytes, *arguments: bytes) -> bytes:
    return function + b"(" + b"".join(arguments) + b"tR"


def _program(body: bytes, protocol: int = 4) -> bytes:
    return b"\x80" + bytes([protocol]) + body + b"."


def _corpus(marker: str) -> dict[str, bytes]:
    shell, python = _text(f"touch {marker}"), _text(f"open({marker!r}, 'w').close()")
    opened = _call(_name("io:open"), _text(marker), _text("w"))
    inner = _program(_call(_name("os:system"), shell))
    return {
        "os.system": _program(_call(_name("os:system"), shell)),
        "posix.system": _program(_call(_name("posix:system"), shell)),
        "nt alias": _program(_call(_name("subprocess:getoutput"), shell)),
        "eval": _program(_call(_name("builtins:eval"), _text(f"open({marker!r}, 'w')"))),
        "exec": _program(_call(_name("builtins:exec"), python)),
        "python 2 name of exec": _program(_call(_name("__builtin__:exec"), python), 2),
        "open for writing": _program(opened),
        "_io.FileIO": _program(_call(_name("_io:FileIO"), _text(marker), _text("w"))),
        "dotted name through numpy": _program(_call(_stack_name("numpy:f2py.os.system"), shell)),
        "dotted name through a known class": _program(
            _call(_stack_name("numpy:ndarray.__class__.__base__.__subclasses__"))
        ),
        "numpy.memmap": _program(
            _call(_name("numpy:memmap"), _text(marker), _text("uint8"), _text("w+"), b"K\x00K\x08")
        ),
        "numpy.save": _program(_call(_name("numpy:save"), _text(marker), b"K\x01")),
        "numpy.load with pickle": _program(_call(_name("numpy:load"), _text(marker), b"N\x88")),
        "numpy.testing runstring": _program(_call(_name("numpy.testing._private.utils:runstring"), python, b"}")),
        "numpy.fromfile": _program(_call(_name("numpy:fromfile"), _text(marker))),
        "tofile of an array": _program(
            _call(_name("operator:methodcaller"), _text("tofile"), _text(marker))
            + b"("
            + _call(_name("numpy:zeros"), b"K\x03")
            + b"tR"
        ),
        "getattr chain": _program(
            _call(_name("builtins:getattr"), _call(_name("builtins:__import__"), _text("os")), _text("system"))
            + b"("
            + shell
            + b"tR"
        ),
        "pickle in a pickle": _program(_call(_name("pickle:loads"), b"B" + struct.pack("<I", len(inner)) + inner)),
        "functools.partial": _program(_call(_call(_name("functools:partial"), _name("os:system"), shell))),
        "runpy": _program(_call(_name("runpy:_run_code"), python, b"}")),
        "timeit": _program(_call(_name("timeit:timeit"), python)),
        "pathlib touch": _program(
            _call(_stack_name("pathlib:Path.touch"), _call(_name("pathlib:PosixPath"), _text(marker)))
        ),
        "os.mkdir": _program(_call(_name("os:mkdir"), _text(marker))),
        "INST of protocol 0": b"(S'touch " + marker.encode() + b"'\nios\nsystem\n.",
        "OBJ of protocol 1": _program(b"(" + _name("os:system") + shell + b"o", 2),
        "NEWOBJ": _program(_name("subprocess:Popen") + b"(" + _call(_name("shlex:split"), shell) + b"t\x81", 2),
        "NEWOBJ_EX": _program(_name("_io:FileIO") + b"(" + _text(marker) + _text("w") + b"t}\x92"),
        "BUILD of a foreign state": _program(
            b"c_frozen_importlib\nModuleSpec\n" + b"(" + _text("x") + b"Nt\x81" + b"}" + _text("y") + _text("z") + b"sb"
        ),
        "EXT1": _program(b"\x82\x01", 2),
        "PERSID": b"P" + marker.encode() + b"\n.",
        "BINPERSID": _program(_text(marker) + b"Q", 2),
        "codec": _program(_call(_name("codecs:open"), _text(marker), _text("w"))),
        "ctypes": _program(_call(_name("ctypes:CDLL"), _text(marker))),
        "webbrowser": _program(_call(_name("webbrowser:open"), _text(f"file://{marker}"))),
        "import": _program(_call(_name("importlib:import_module"), _text("antigravity"))),
        "qualcheck itself": _program(_call(_name("qualcheck.cli:main"))),
        "in a late value": _program(
            b"}(" + _text("observations") + b"N" + _text("actions") + _call(_name("os:system"), shell) + b"u"
        ),
        "as a key": _program(b"}(" + _call(_name("os:system"), shell) + b"Nu"),
        "after the end": pickle.dumps({"observations": 1}) + _program(_call(_name("os:system"), shell)),
        "object array rebuilt": _program(
            _call(_stack_name("numpy._core.multiarray:_reconstruct"), _name("os:system"), b"K\x00\x85", _text("b"))
        ),
    }


NAMES = sorted(_corpus("/nowhere"))


def _npy(path: Path, payload: bytes) -> Path:
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": ()})
        stream.write(payload)
    return path


def _is_refused(done: Any, marker: Path, out: Path) -> None:
    assert not marker.exists()
    assert done.returncode == 1, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "fault of qualcheck" not in done.stderr
    assert done.stdout == ""
    assert not out.exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_pickle_is_refused_before_it_runs(name: str, qualcheck: Any, tmp_path: Path) -> None:
    marker, out = tmp_path / "marker", tmp_path / "run"
    payload = _corpus(str(marker))[name]
    assert len(list(pickletools.genops(payload))) > 1
    path = _npy(tmp_path / "a.npy", payload)
    _is_refused(qualcheck("score", path, "--env", "babyai", "-o", out), marker, out)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npy"]


def test_the_corpus_is_hostile(tmp_path: Path) -> None:
    done = []
    for name in ("os.system", "exec", "open for writing", "INST of protocol 0", "OBJ of protocol 1", "numpy.memmap"):
        marker = tmp_path / name.replace(" ", "_")
        pickle.loads(_corpus(str(marker))[name])
        done.append(marker.exists())
    assert all(done)


@pytest.mark.parametrize("how", ["bare pickle", "as parquet", "as hdf5"])
def test_a_hostile_pickle_under_another_name_is_refused(how: str, qualcheck: Any, tmp_path: Path) -> None:
    marker, out = tmp_path / "marker", tmp_path / "run"
    payload = _corpus(str(marker))["os.system"]
    name = {"bare pickle": "a.pkl", "as parquet": "a.parquet", "as hdf5": "a.h5"}[how]
    path = tmp_path / name
    if how == "bare pickle":
        path.write_bytes(payload)
    else:
        _npy(path, payload)
    _is_refused(qualcheck("score", path, "--env", "babyai", "-o", out), marker, out)


def test_a_hostile_reference_is_refused(qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path) -> None:
    marker, out = tmp_path / "marker", tmp_path / "run"
    good = bench.npy(tmp_path / "good.npy", bench.arrays([episode(tour)]))
    bad = _npy(tmp_path / "bad.npy", _corpus(str(marker))["exec"])
    _is_refused(qualcheck("score", good, "--env", "babyai", "--reference", bad, "-o", out), marker, out)


def _laughs(levels: int) -> bytes:
    body = b"]" + b"(K\x01K\x02e"
    for _ in range(levels):
        body = b"](" + body + b"q\x00" + b"h\x00" * 9 + b"e"
    return _program(body, 2)


BOMBS: dict[str, Callable[[], bytes]] = {
    "a length of 2^62": lambda: _program(b"\x8e" + struct.pack("<Q", 1 << 62) + b"x"),
    "a text of 2^31": lambda: _program(b"X" + struct.pack("<I", 1 << 31) + b"x"),
    "a frame of 2^62": lambda: _program(b"\x95" + struct.pack("<Q", 1 << 62) + b"N"),
    "nested 100,000 deep": lambda: _program(b"(" * 100_000 + b"t" * 100_000),
    "lists in lists": lambda: _program(b"]" * 50_000 + b"a" * 49_999),
    "a number of a million digits": lambda: b"I" + b"9" * 1_000_000 + b"\n.",
    "a memo index of 2^31": lambda: _program(b"Nr" + struct.pack("<I", (1 << 31) - 1)),
    "a list that holds itself": lambda: _program(b"]q\x00h\x00a", 2),
    "many references": lambda: _laughs(30),
    "an array of a gigabyte in no bytes": lambda: _program(
        _call(_name("numpy.core.multiarray:_reconstruct"), _name("numpy:ndarray"), b"K\x00\x85", b"C\x01b")
        + b"(K\x01J"
        + struct.pack("<i", 1 << 30)
        + b"\x85"
        + _call(_name("numpy:dtype"), _text("f8"), b"\x89\x88")
        + b"\x89C\x00tb"
    ),
    "stack underflow": lambda: _program(b"tR0b"),
    "no stop": lambda: b"\x80\x04N",
    "unknown opcode": lambda: _program(b"\xff\xfe"),
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_a_pickle_bomb_neither_fills_the_memory_nor_hangs(name: str, qualcheck: Any, tmp_path: Path) -> None:
    path = _npy(tmp_path / "a.npy", BOMBS[name]())
    limited = qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "run", timeout=30)
    _is_refused(limited, tmp_path / "marker", tmp_path / "run")


def _junk(base: bytes, parquet: bytes) -> dict[str, bytes]:
    rng = np.random.default_rng(11)
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    absurd = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000), }"
    return {
        "empty": b"",
        "text": b"observations, actions\n1, 2\n",
        "json": b'{"observations": [[1, 2]]}',
        "png": png + struct.pack(">I", zlib.crc32(png[12:])),
        "random": rng.bytes(10_000),
        "zeros": b"\0" * 10_000,
        "gzip": gzip.compress(base),
        "zip": b"PK\x03\x04" + rng.bytes(500),
        "hdf5 magic": b"\x89HDF\r\n\x1a\n" + rng.bytes(500),
        "parquet magic only": b"PAR1PAR1",
        "parquet magic and noise": b"PAR1" + rng.bytes(500) + struct.pack("<I", 400) + b"PAR1",
        "npy magic only": b"\x93NUMPY",
        "npy without data": header + absurd.ljust(117).encode() + b"\n",
        "npy with a header that calls": header + b"{'descr': __import__('os').system('id')}".ljust(117) + b"\n",
        "plain float array": _plain(np.zeros((3, 4))),
        "number": pickle.dumps(7),
        "half a parquet": parquet[: len(parquet) // 2],
        "parquet without its head": parquet[100:],
    }


def _plain(array: np.ndarray) -> bytes:
    import io

    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


JUNK = sorted(_junk(b"", b"x" * 200))


@pytest.fixture(scope="module")
def good(bench: Any, episode: Any, tour: Any, tmp_path_factory: Any) -> tuple[bytes, bytes]:
    folder = tmp_path_factory.mktemp("good")
    content = bench.arrays([episode(tour), episode(tour[:4])])
    return (
        bench.npy(folder / "a.npy", content).read_bytes(),
        bench.parquet(folder / "a.parquet", content).read_bytes(),
    )


@pytest.mark.parametrize("name", JUNK)
def test_a_file_that_holds_no_rollouts_is_refused_in_one_line(
    name: str, good: Any, qualcheck: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(_junk(*good)[name])
    _is_refused(qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "run"), tmp_path / "m", tmp_path / "run")


@pytest.mark.parametrize("share", [0.001, 0.05, 0.2, 0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("kind", [0, 1])
def test_a_truncated_file_is_refused_in_one_line(
    kind: int, share: float, good: Any, qualcheck: Any, tmp_path: Path
) -> None:
    path = tmp_path / ("a.npy", "a.parquet")[kind]
    path.write_bytes(good[kind][: int(share * len(good[kind]))])
    _is_refused(qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "run"), tmp_path / "m", tmp_path / "run")


def test_a_folder_or_nothing_as_input_is_refused_in_one_line(qualcheck: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder", "absent.npy"):
        done = qualcheck("score", tmp_path / name, "--env", "babyai", "-o", tmp_path / "run")
        assert done.returncode in (1, 2)
        assert done.stderr.count("\n") == 1
        assert name in done.stderr
        assert not (tmp_path / "run").exists()


STRUCTURES = {
    "no observations": lambda c: {k: v for k, v in c.items() if k != "observations"},
    "no actions": lambda c: {k: v for k, v in c.items() if k != "actions"},
    "16 columns": lambda c: {**c, "observations": c["observations"][..., :16]},
    "two dimensions": lambda c: {**c, "observations": c["observations"][0]},
    "text as observations": lambda c: {**c, "observations": ["a", "b"]},
    "actions of another length": lambda c: {**c, "actions": c["actions"][:, :3]},
    "masks of another length": lambda c: {**c, "masks": c["masks"][:, :3]},
    "complex observations": lambda c: {**c, "observations": c["observations"].astype(complex)},
    "next observations of another width": lambda c: {**c, "next_observations": c["next_observations"][..., :9]},
    "a list": lambda c: [1, 2, 3],
    "an empty dictionary": lambda c: {},
    "ragged objects": lambda c: {**c, "observations": np.array([np.zeros((2, 17)), np.zeros((3, 17))], object)},
}


@pytest.mark.parametrize("name", sorted(STRUCTURES))
def test_a_broken_structure_is_refused_in_one_line(
    name: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    content = bench.arrays([episode(tour), episode(tour[:4])])
    path = bench.npy(tmp_path / "a.npy", STRUCTURES[name](content))
    _is_refused(qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "run"), tmp_path / "m", tmp_path / "run")


def _lie(table: Any, how: str) -> Any:
    import pyarrow as pa

    def put(name: str, values: Any) -> Any:
        return table.set_column(table.column_names.index(name), name, pa.array(values))

    rows = table.to_pydict()
    data, shapes = rows["observations_data"], rows["observations_shape"]
    return {
        "row index twice": lambda: put("row_index", [0, 0]),
        "row index beyond": lambda: put("row_index", [0, 7]),
        "row index negative": lambda: put("row_index", [0, -1]),
        "row index missing": lambda: table.drop_columns(["row_index"]),
        "row index null": lambda: put("row_index", pa.array([0, None], pa.int64())),
        "shape too large": lambda: put("observations_shape", ["(2, 1000, 17)"] * 2),
        "shape absurd": lambda: put("observations_shape", ["(2, 4000000000, 4000000000)"] * 2),
        "shape negative": lambda: put("observations_shape", ["(2, -10, 17)"] * 2),
        "shape of code": lambda: put("observations_shape", ["__import__('os').system('id')"] * 2),
        "shape null": lambda: put("observations_shape", pa.array([None, None], pa.string())),
        "shapes differ": lambda: put("observations_shape", [shapes[0], "(2, 5, 34)"]),
        "dtype unknown": lambda: put("observations_dtype", ["float33"] * 2),
        "dtype object": lambda: put("observations_dtype", ["object"] * 2),
        "bytes too few": lambda: put("observations_data", [data[0], data[1][:-4]]),
        "bytes too many": lambda: put("observations_data", [data[0], data[1] + b"abcd"]),
        "bytes null": lambda: put("observations_data", pa.array([data[0], None], pa.binary())),
        "bytes as text": lambda: put("observations_data", ["one", "two"]),
        "no rows": lambda: table.slice(0, 0),
        "no columns": lambda: table.select(["file_name", "row_index"]),
        "another table": lambda: pa.table({"a": [1, 2], "b": ["x", "y"]}),
    }[how]()


LIES = (
    "row index twice,row index beyond,row index negative,row index missing,row index null,shape too large,shape absurd,"
    "shape negative,shape of code,shape null,shapes differ,dtype unknown,dtype object,bytes too few,bytes too many,"
    "bytes null,bytes as text,no rows,no columns,another table"
)


# the order is still plain, and the released loader goes by the first row's shape
HARMLESS = ("row index beyond", "row index negative", "shapes differ")


@pytest.mark.parametrize("how", LIES.split(","))
def test_a_parquet_that_lies_about_itself_is_refused_in_one_line(
    how: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    path = bench.parquet(tmp_path / "a.parquet", bench.arrays([episode(tour), episode(tour[:4])]))
    pq.write_table(_lie(pq.read_table(path), how), path)
    done = qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "run", timeout=30)
    if done.returncode == 0 and how in HARMLESS:
        verdicts = pq.read_table(tmp_path / "run/transitions.parquet").to_pydict()
        order = [0] * 4 + [1] * 10 if how == "row index negative" else [0] * 10 + [1] * 4
        assert verdicts["rollout"] == order
        assert verdicts["tc"] == [1] * 14
    else:
        _is_refused(done, tmp_path / "marker", tmp_path / "run")


@pytest.mark.parametrize("folder", ["with space", "ünïcödé 机器人", "new\nline", "-dash", "[bold] [red]", "a" * 200])
def test_odd_paths_are_only_names(
    folder: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    home = tmp_path / folder
    home.mkdir()
    bench.npy(home / "a b.npy", bench.arrays([episode(tour), episode(tour[:4])]))
    run = qualcheck.score(home / "my run", home / "a b.npy")
    assert Path(run.r["source"][0]).name == "a b.npy"
    assert qualcheck.report(run.path)["cells"][0]["n_rollouts"] == 2
    done = qualcheck("filter", run.path, "--min-correctness", 1, "-o", home / "kept it.parquet")
    assert done.returncode == 0, done.stderr
    (home / "bad.npy").write_bytes(b"no")
    done = qualcheck("score", home / "bad.npy", "--env", "babyai", "-o", home / "other")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_odd_instructions_are_only_text(qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path) -> None:
    texts = [
        "go to the\nblue ball",
        "\x1b[31mred\x1b[0m",
        "机器人",
        "=cmd()|x",
        "\\textbf{x} & % $",
        "[red]x[/red]",
        "a" * 99_999,
    ]
    content = bench.arrays([episode(tour, instruction=text) for text in texts])
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", content))
    assert list(run.r["instruction"]) == texts
    assert run.r["gc_imagined"][0] == 1
    for kind in ("table", "md", "csv", "tex", "json"):
        done = qualcheck("report", run.path, "--format", kind)
        assert done.returncode == 0, done.stderr
        assert "\x1b[31m" not in done.stdout
    done = qualcheck("inspect", run.path, "1")
    assert done.returncode == 0, done.stderr
    assert "\x1b[31m" not in done.stdout


def test_a_harmless_foreign_pickle_is_refused_and_trusted_with_a_warning(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    import datetime

    content = {**bench.arrays([episode(tour)]), "made": datetime.datetime(2026, 1, 1)}
    path = bench.npy(tmp_path / "a.npy", content)
    refused = qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "no")
    _is_refused(refused, tmp_path / "marker", tmp_path / "no")
    assert "--trust-pickle" in refused.stderr
    assert "datetime" in refused.stderr
    run = qualcheck.score(tmp_path / "run", path, options=["--trust-pickle"])
    assert "warning" in run.done.stderr.lower()
    assert (run.t["tc"] == 1).all()


def test_trust_is_never_remembered(qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path) -> None:
    import datetime

    content = {**bench.arrays([episode(tour)]), "made": datetime.datetime(2026, 1, 1)}
    path = bench.npy(tmp_path / "a.npy", content)
    run = qualcheck.score(tmp_path / "run", path, options=["--trust-pickle"]).path
    done = qualcheck("filter", run, "--min-correctness", 1, "-o", tmp_path / "kept.parquet")
    assert done.returncode == 1
    assert "--trust-pickle" in done.stderr
    done = qualcheck("filter", run, "--min-correctness", 1, "--trust-pickle", "-o", tmp_path / "kept.parquet")
    assert done.returncode == 0
    assert "warning" in done.stderr.lower()
