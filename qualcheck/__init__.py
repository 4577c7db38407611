"""qualcheck: is an imagined rollout true? Replay it in the real simulator and see.

The verbs of the command line are functions here, with the same options:

    run = qualcheck.score("babyai_imaginary_hard.npy", env="babyai", out="run", level="hard")
    qualcheck.filter("run", out="kept.parquet", min_consistency=1)
    print(qualcheck.report(["run"], format="md"))

So are environments, real data and a policy's success:

    qualcheck.collect("babyai", "real", 100, "real.parquet")
    env = qualcheck.make_env("babyai", "goto")
    print(qualcheck.evaluate(policy, "babyai", "goto", episodes=1000))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from qualcheck.calibrating import calibrate
    from qualcheck.collecting import collect
    from qualcheck.converting import convert
    from qualcheck.evaluating import evaluate
    from qualcheck.filtering import filter_run as filter
    from qualcheck.inspection import inspect
    from qualcheck.making import make_env
    from qualcheck.pipeline import score
    from qualcheck.reporting import report
    from qualcheck.selftesting.running import selftest
    from qualcheck.sharding import merge, score_shard
    from qualcheck.validating import validate

__all__ = [
    "__version__",
    "calibrate",
    "collect",
    "convert",
    "evaluate",
    "filter",
    "inspect",
    "make_env",
    "merge",
    "report",
    "score",
    "score_shard",
    "selftest",
    "validate",
]

_VERBS = {
    "score": ("qualcheck.pipeline", "score"),
    "score_shard": ("qualcheck.sharding", "score_shard"),
    "merge": ("qualcheck.sharding", "merge"),
    "filter": ("qualcheck.filtering", "filter_run"),
    "report": ("qualcheck.reporting", "report"),
    "calibrate": ("qualcheck.calibrating", "calibrate"),
    "convert": ("qualcheck.converting", "convert"),
    "inspect": ("qualcheck.inspection", "inspect"),
    "collect": ("qualcheck.collecting", "collect"),
    "make_env": ("qualcheck.making", "make_env"),
    "evaluate": ("qualcheck.evaluating", "evaluate"),
    "selftest": ("qualcheck.selftesting.running", "selftest"),
    "validate": ("qualcheck.validating", "validate"),
}


def __getattr__(name: str) -> Any:
    """Verbs are imported when first used, so that `import qualcheck` stays light."""
    if name not in _VERBS:
        raise AttributeError(f"module 'qualcheck' has no attribute {name!r}")
    module, attribute = _VERBS[name]
    return getattr(import_module(module), attribute)
