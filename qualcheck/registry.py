"""Environments by id, imported only when asked for."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from qualcheck.adapter import EnvAdapter
from qualcheck.errors import MissingExtra, UnknownName, unknown_name

BUILT_IN: dict[str, str] = {
    "babyai": "qualcheck.envs.babyai:BabyAI",
    "clevr": "qualcheck.envs.clevr:Clevr",
    "halfcheetah": "qualcheck.envs.halfcheetah:HalfCheetah",
    "libero": "qualcheck.envs.libero:Libero",
    "metaworld": "qualcheck.envs.metaworld:MetaWorld",
    "toy": "qualcheck.envs.toy:Toy",
}

# environments of a family, named with a slash; their rows look like each other's, so they are never guessed
FAMILY: dict[str, str] = {
    f"gymnasium/{name}-{version}": f"qualcheck.envs.gymnasium_mujoco.adapter:{name}{version.upper()}"
    for name in ("Ant", "HalfCheetah", "Hopper", "Swimmer", "Walker2d")
    for version in ("v4", "v5")
}

CALLED = {"mujoco": "halfcheetah", "ball": "clevr"}  # what the benchmark's files call them


def known() -> dict[str, str]:
    """Id -> "module:attribute" of every environment, those of other packages' entry points included."""
    found = {point.name: point.value for point in entry_points(group="qualcheck.envs")}
    return {**found, **FAMILY, **BUILT_IN}


def again(adapter: EnvAdapter) -> EnvAdapter:
    """Another adapter of the same environment, row layout and simulator family."""
    other = load(adapter.spec.id).with_layout(adapter.spec.obs_size)
    return other.with_family(adapter.family) if adapter.family else other


def load(env: str) -> EnvAdapter:
    """The adapter of one environment.

    Raises:
        UnknownName: no environment has that id.
        MissingExtra: its simulator is not installed.
    """
    places = known()
    if env not in places:
        if env in CALLED and CALLED[env] in places:
            raise UnknownName(f"no environment {env!r}; the files of that name are --env {CALLED[env]}.")
        raise unknown_name("environment", env, list(places))
    module, _, attribute = places[env].partition(":")
    try:
        adapter: EnvAdapter = getattr(importlib.import_module(module), attribute)()
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{env} needs the package {error.name!r}, which is not installed. Install it with: pip install "
            f"'qualcheck[{env}]' where that extra exists, else pip install {error.name}"
        ) from error
    return adapter
