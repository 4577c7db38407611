"""What scoring costs: transitions per core-hour of each environment, for planning.

    python benchmarks/cost.py [--envs babyai,...]

Real rollouts are recorded by the scripted experts, a fifth of them at random; "noisy" ones have noise on every number
of every row, as imagined rollouts do, so that the hidden state of the arms is in doubt at each step. Time is that of
the processor (user and system) of `qualcheck score` as a whole, less that of scoring a smaller file: start-up does not
count, nor do explanations, which take a sample of bounded size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import qualcheck

PLAN = {  # rollouts of each task, some 1,500 transitions and more, and the noise of rows
    "babyai": (200, 4_000, 0.0),
    "halfcheetah": (20, 200, 0.01),
    "clevr": (40, 100, 0.01),
    "metaworld": (4, 12, 0.005),
    "libero": (5, 12, 0.005),
}


def shaken(path: Path, noise: float) -> Path:
    """A copy of a file with noise on every number of every row, but for the first of each rollout."""
    table = pq.read_table(path)
    rng = np.random.default_rng(0)
    first = table["step"].to_numpy() == 0
    for name in ("obs", "next_obs"):
        column = table[name].combine_chunks()
        flat = column.flatten() if name == "obs" else column.values
        size = column.type.list_size
        rows = flat.to_numpy(zero_copy_only=False).reshape(-1, size)
        moved = rows + noise * rng.normal(size=rows.shape)
        if name == "obs":
            moved[first] = rows[first]
        values = pa.array(moved.ravel().astype(rows.dtype))
        kept = pa.FixedSizeListArray.from_arrays(values, size, mask=column.is_null())
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), kept)
    out = path.with_suffix(".noisy.parquet")
    pq.write_table(table, out)
    return out


def seconds(path: Path, env: str, folder: Path) -> float:
    """Processor time of scoring a file."""
    command = [sys.executable, "-m", "qualcheck", "score", str(path), "--env", env, "--recheck", "0"]
    run = folder / f"run-{path.stem}"
    process = subprocess.Popen([*command, "-o", str(run)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{path}: score failed")
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", default=",".join(PLAN))
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(f"{'environment':<13}{'rows':<8}{'transitions':>12}{'a core-second':>15}{'a core-hour':>14}{'10^8 rows':>17}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for env in options.envs.split(","):
            small, large, noise = PLAN[env]
            files = {}
            for count in (small, large):
                files[count] = folder / f"{env}-{count}.parquet"
                qualcheck.collect(env, "real", count, files[count], random_share=0.2, seed=1)
            kinds = {"real": files} | ({"noisy": {n: shaken(p, noise) for n, p in files.items()}} if noise else {})
            for kind, each in kinds.items():
                rows = [pq.ParquetFile(each[count]).metadata.num_rows for count in (small, large)]
                took = [seconds(each[count], env, folder) for count in (small, large)]
                speed = (rows[1] - rows[0]) / (took[1] - took[0])
                hours = 1e8 / speed / 3600
                print(f"{env:<13}{kind:<8}{rows[1]:>12,}{speed:>15,.0f}{speed * 3600:>14,.0f}{hours:>11,.1f} hours")


if __name__ == "__main__":
    main()
