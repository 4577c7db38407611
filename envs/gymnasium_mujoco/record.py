"""Own recordings of the family, and the calibrations that ship made of them.

    python -m qualcheck.envs.gymnasium_mujoco.record -o FOLDER [--each N]

Half of the rollouts act at random, the other half with noise that lasts (each action is 0.9 of the last one and new
noise), which moves a body further. The recording simulator keeps its warm start from step to step, as gymnasium does,
and a replay does not have it: what that costs is in the tolerances.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from qualcheck import __version__
from qualcheck.envs.gymnasium_mujoco.adapter import GymnasiumMujoco
from qualcheck.registry import FAMILY, load
from qualcheck.types import Rollouts

SEEDS = {"fit": 1, "control": 2}
LASTING = 0.9
STEPS = 200


def record(
    adapter: GymnasiumMujoco, count: int, rng: np.random.Generator, steps: int = STEPS, scale: float = 1.0
) -> Rollouts:
    """Rollouts from resets, until the body falls or `steps` are over; float64 rows, float32 actions.

    Args:
        scale: share of the action range that is used; small actions seldom reach the bound of clipped velocities.
    """
    env, limit = adapter.simulator(), adapter.spec.action.high * scale
    obs, action, terminal, lengths = [], [], [], []
    for i in range(count):
        row, _ = env.reset(seed=int(rng.integers(2**31)))
        obs.append(row)
        last = np.zeros(adapter.spec.action.size)
        length = 0
        for _ in range(steps):
            noise = rng.uniform(-limit, limit, len(last))
            last = noise if i % 2 == 0 else np.clip(LASTING * last + 0.5 * noise, -limit, limit)
            row, _, ended, *_ = env.step(last.astype(np.float32))
            obs.append(row)
            action.append(last.astype(np.float32))
            terminal.append(ended)
            length += 1
            if ended:
                break
        lengths.append(length)
    env.close()
    return Rollouts(
        obs=np.array(obs),
        action=np.array(action),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        has_final=np.ones(count, bool),
        source=np.zeros(count, np.int32),
        source_rollout=np.arange(count, dtype=np.int32),
        source_step=np.zeros(count, np.int32),
        instruction=[None] * count,
        terminal=np.array(terminal),
        is_reset=np.ones(count, bool),
    )


def main() -> None:
    from qualcheck.calibrating import build  # not at the top: recordings need nothing of it
    from qualcheck.tolerance import ALPHA

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=60, help="rollouts for the fit, and as many for the control")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    for name in FAMILY:
        usual = load(name)
        for spec in usual.layouts():
            adapter = usual.with_layout(spec.obs_size)
            assert isinstance(adapter, GymnasiumMujoco)
            fit, control = (
                record(adapter, options.each, np.random.default_rng([seed, spec.obs_size])) for seed in SEEDS.values()
            )
            provenance = {
                "source": "shipped calibration: own recordings with random actions, held out",
                "data": [],
                "made_by": {
                    "command": f"python -m qualcheck.envs.gymnasium_mujoco.record --each {options.each}",
                    "qualcheck": __version__,
                    "mujoco": version("mujoco"),
                },
            }
            content = build(adapter, [fit], [control], ALPHA, provenance, None)
            path = options.out / f"{name}-{spec.obs_size}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":"))
            path.write_text(text + "\n", encoding="utf-8")
            sys.stdout.write(f"{path}\n")
            adapter.close()


if __name__ == "__main__":
    main()
