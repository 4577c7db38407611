"""The scene's model: what is left out of it, its cache, and the extra that it is made from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

from qualcheck.envs.libero import model
from qualcheck.errors import MissingExtra

# a box that is only seen, one of group 0 that is only seen but has mass, and one that touches
SCENE = """
<mujoco>
  <asset><texture name="paint" type="2d" builtin="flat" width="8" height="8" rgb1="1 0 0"/>
    <material name="paint" texture="paint"/></asset>
  <worldbody><light pos="0 0 1"/><camera pos="0 0 2"/>
    <body name="block"><freejoint/>
      <site name="gripper0_grip_site"/><site name="other"/>
      <geom name="seen" type="box" size="1 1 1" contype="0" conaffinity="0" group="1" material="paint"/>
      <geom name="heavy" type="box" size=".1 .1 .1" contype="0" conaffinity="0" group="0" pos=".1 0 0"/>
      <geom name="touches" type="box" size=".1 .2 .3" conaffinity="0" group="1" material="paint"/>
    </body></worldbody>
  <sensor><force site="other"/></sensor>
</mujoco>
"""


def geoms(scene: str) -> list[str]:
    compiled = mujoco.MjModel.from_xml_string(scene)
    return [compiled.geom(i).name for i in range(compiled.ngeom)]


def test_only_what_a_renderer_needs_is_left_out() -> None:
    lean = model.physics_only(SCENE)
    assert geoms(SCENE) == ["seen", "heavy", "touches"]
    assert geoms(lean) == ["heavy", "touches"]
    compiled = mujoco.MjModel.from_xml_string(lean)
    assert (compiled.ntex, compiled.nmat, compiled.nsensor, compiled.nlight, compiled.ncam) == (0, 0, 0, 0, 0)
    assert [compiled.site(i).name for i in range(compiled.nsite)] == ["gripper0_grip_site"]
    assert compiled.nuserdata == 1
    # two boxes of density 1000: 0.2^3 and 0.2 x 0.4 x 0.6 m
    assert compiled.body("block").mass[0] == pytest.approx(8.0 + 48.0)


def test_the_referees_scene_keeps_every_name_and_all_that_moves() -> None:
    lean = mujoco.MjModel.from_xml_string(model.dotted(SCENE))
    assert geoms(model.dotted(SCENE)) == ["seen", "heavy", "touches"]
    assert (lean.ntex, lean.nmat, lean.nsensor, lean.geom("seen").size[0]) == (0, 0, 1, 0.001)
    assert lean.body("block").mass[0] == pytest.approx(8.0 + 48.0)
    pytest.importorskip("robosuite")
    scene = model.full_scene()
    full, lean = mujoco.MjModel.from_xml_string(scene), mujoco.MjModel.from_xml_string(model.dotted(scene))
    assert geoms(scene) == [lean.geom(i).name for i in range(lean.ngeom)]
    assert full.nbuffer > 20 * lean.nbuffer
    ends = []
    for scene_model in (full, lean):
        data = mujoco.MjData(scene_model)
        data.ctrl[:] = 1.0
        mujoco.mj_step(scene_model, data, 300)
        ends.append((data.qpos.copy(), data.qvel.copy(), data.xpos.copy()))
    for one, other in zip(*ends, strict=True):
        assert np.array_equal(one, other)
    assert np.abs(ends[0][1]).max() > 0.01, "something moved"


def test_missing_extra_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "PACKAGES", ("mujoco", "a-package-nobody-has"))
    with pytest.raises(MissingExtra, match=r"pip install 'qualcheck\[libero\]'"):
        model.load()


def test_the_modules_import_without_the_extra_and_the_simulator_says_what_is_missing() -> None:
    program = (
        "import sys\n"
        "for name in ('numba', 'llvmlite', 'robosuite', 'libero'): sys.modules[name] = None\n"
        "from qualcheck.envs.libero import controller, kernel, layout, model\n"
        "from qualcheck.errors import MissingExtra\n"
        "for call in (kernel.Simulator, model.full_scene):\n"
        "    try: call()\n"
        "    except MissingExtra as error: print(error.exit_code, 'qualcheck[libero]' in str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "True"] * 2


def test_cache_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QUALCHECK_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model.cache_folder() == tmp_path / "qualcheck"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert model.cache_folder().parts[-3:] == ("Library", "Caches", "qualcheck")
    monkeypatch.setenv("QUALCHECK_CACHE", str(tmp_path / "own"))
    assert model.cache_folder() == tmp_path / "own"


def test_the_lean_model_is_made_once_and_again_where_it_is_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("robosuite")
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / "cache"
    first = model.load(cache)
    (kept,) = cache.iterdir()  # no half-written file beside it
    assert kept.stat().st_size < 4e6
    built: list[int] = []
    real = model.build
    monkeypatch.setattr(model, "build", lambda: built.append(1) or real())
    again = model.load(cache)
    assert not built
    kept.write_bytes(kept.read_bytes()[:100_000])
    rebuilt = model.load(cache)
    assert built == [1]
    for other in (again, rebuilt):
        assert np.array_equal(other.body_inertia, first.body_inertia)
    (tmp_path / "file").write_text("")
    assert model.load(tmp_path / "file" / "below").nq == 37  # no folder can be made there
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "file"]  # no MUJOCO_LOG.TXT


def test_the_lean_model_has_the_dynamics_of_the_full_one() -> None:
    pytest.importorskip("robosuite")
    full, lean = mujoco.MjModel.from_xml_string(model.full_scene()), model.build()
    assert full.nbuffer > 50 * lean.nbuffer
    mass = ("body_mass", "body_inertia", "body_ipos", "body_iquat", "body_invweight0", "dof_invweight0", "qpos0")
    for name in (*mass, "dof_armature", "dof_damping", "jnt_range", "actuator_gainprm", "actuator_biasprm"):
        assert np.array_equal(getattr(full, name), getattr(lean, name)), name
    touching = (full.geom_contype != 0) | (full.geom_conaffinity != 0)
    for name in ("geom_pos", "geom_quat", "geom_size", "geom_friction", "geom_solref", "geom_solimp", "geom_bodyid"):
        assert np.array_equal(getattr(full, name)[touching], getattr(lean, name)), name
    assert full.stat.meaninertia == lean.stat.meaninertia
    # numbers of the benchmark's recordings: kg
    masses = {"alphabet_soup": 0.0259, "cream_cheese": 0.0062, "salad_dressing": 0.0218, "basket": 0.1361}
    for name, mass in masses.items():
        assert lean.body(f"{name}_1_main").mass[0] == pytest.approx(mass, abs=5e-5)
