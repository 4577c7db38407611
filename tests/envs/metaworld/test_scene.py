"""Models from metaworld's assets, the layout that row 0 shows, and the state that a row shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from qualcheck.envs.metaworld import arm, scene
from qualcheck.envs.metaworld.kernel import Kernel
from qualcheck.envs.metaworld.layout import TASKS, base_task, position

GOLDEN = ("real", "easy", "hard")


def golden(shared_data: Path, level: str) -> dict[str, Any]:
    data: dict[str, Any] = np.load(shared_data / "golden" / f"metaworld_{level}.npy", allow_pickle=True).item()
    return data


@pytest.fixture(scope="module")
def kernel() -> Any:
    made = Kernel("2.3", threads=1)
    yield made
    made.close()


@pytest.mark.parametrize("task", ["push", "coffee-push", "hammer", "door-open"])
def test_leaving_out_what_only_a_camera_sees_changes_no_mass(task: str) -> None:
    slim = scene.build(task, scene.FAMILIES["2.3"], False)
    full = mujoco.MjModel.from_xml_path(scene.xml_path(task))
    assert slim.ngeom < full.ngeom
    assert slim.nmesh < full.nmesh
    for name in ("body_mass", "body_inertia", "body_ipos", "dof_damping", "jnt_range"):
        np.testing.assert_array_equal(getattr(slim, name), getattr(full, name))


@pytest.mark.parametrize("task", ["push", "button-press", "door-open"])
def test_leaving_out_what_meets_nothing_changes_no_bit_of_a_step(task: str) -> None:
    slim = scene.build(task, scene.FAMILIES["2.3"], False)
    full = mujoco.MjModel.from_xml_path(scene.xml_path(task))
    full.eq_data[:], full.opt.disableflags = slim.eq_data, slim.opt.disableflags
    meets = (slim.geom_contype[:, None] & slim.geom_conaffinity) | (slim.geom_conaffinity[:, None] & slim.geom_contype)
    named = np.isin([slim.geom(k).name for k in range(slim.ngeom)], ("handle", "mug"))
    assert (meets.any(axis=1) | named).all()
    ends, contacts = [], 0
    for model in (slim, full):
        data, rng = mujoco.MjData(model), np.random.default_rng(0)
        for _ in range(40):
            data.mocap_pos[0] = rng.uniform([-0.1, 0.5, 0.05], [0.1, 0.8, 0.2])
            data.mocap_quat[0], data.ctrl[:] = arm.UPRIGHT_MOCAP, rng.uniform(-1, 1) * np.array([1, -1])
            mujoco.mj_step(model, data, 10)
            contacts += data.ncon
        ends.append((data.qpos.copy(), data.qvel.copy()))
    assert contacts > 0
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    np.testing.assert_array_equal(ends[0][1], ends[1][1])


def test_families_differ_in_the_weld_and_the_collision_library() -> None:
    flag = int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)
    old, stock = (scene.build("reach", scene.FAMILIES[name], False) for name in ("2.3", "3.x"))
    assert old.eq_data[0, 10] == scene.FAMILIES["2.3"].torque_scale
    assert stock.eq_data[0, 10] == 5.0
    assert old.opt.disableflags & flag
    assert not stock.opt.disableflags & flag


def test_only_the_modified_door_turns() -> None:
    modified = scene.build("door-unlock", scene.FAMILIES["2.3"], True)
    rigid = scene.build("door-unlock", scene.FAMILIES["2.3"], False)
    assert (modified.nq, rigid.nq) == (11, 10)
    assert modified.joint("doorjoint").qposadr[0] == 9


def test_the_door_is_told_by_the_quaternion_of_the_lock() -> None:
    rows = np.zeros((3, 91))
    rows[:, 24] = 1
    assert not scene.has_modified_door("door-unlock", rows[0], rows)
    assert not scene.has_modified_door("door-lock", rows[0], rows)
    assert scene.has_modified_door("locked-door-open", rows[0], rows)
    turned = rows.copy()
    turned[:, 24:28] = [0.70711, 0, 0, 0.70711]
    assert scene.has_modified_door("door-unlock", turned[0], turned)
    rows[2, 27] = 1e-5
    assert scene.has_modified_door("door-lock", rows[0], rows)
    assert not scene.has_modified_door("push", turned[0], turned)


def test_the_furniture_of_a_button_row_stands_behind_the_button(kernel: Kernel) -> None:
    row = np.zeros(91)
    row[14:18] = [0.05, 0.66, 0.115, 1]
    made = kernel.scene("button-press", False)
    made.set_layout(row)
    np.testing.assert_allclose(made.model.body("box").pos, [0.05, 0.853, 0.115], atol=1e-12)
    row[14] += 0.02
    made.set_layout(row)
    assert made.model.body("box").pos[0] == pytest.approx(0.07)


@pytest.mark.parametrize("level", GOLDEN)
def test_the_layout_of_row_0_is_the_vector_the_episode_was_drawn_with(
    level: str, shared_data: Path, kernel: Kernel
) -> None:
    data = golden(shared_data, level)
    checked = 0
    for i, name in enumerate(data["task_str"]):
        task, row = base_task(name), data["observations"][i, 0].astype(np.float64)
        rows = data["observations"][i, :5]
        made = kernel.scene(task, scene.has_modified_door(task, row, rows))
        if made.layout_body < 0 or task == "hammer":
            continue
        made.set_layout(row)
        drawn = data["rand_vec"][i]
        wanted = drawn[3:] if task in ("coffee-push", "make-coffee", "soccer") else drawn[:3]
        wanted = wanted + np.array([0, 0.22, 0]) if task in ("coffee-push", "make-coffee") else wanted
        np.testing.assert_allclose(made.model.body_pos[made.layout_body], wanted, atol=2e-5, err_msg=task)
        checked += 1
    assert checked > 8


@pytest.mark.parametrize("level", GOLDEN)
def test_joints_and_poses_read_off_rows_are_those_of_the_recorded_state(
    level: str, shared_data: Path, kernel: Kernel
) -> None:
    data = golden(shared_data, level)
    for i, name in enumerate(data["task_str"]):
        task, length = base_task(name), int(data["masks"][i].sum())
        rows = data["observations"][i, :length].astype(np.float64)
        made = kernel.scene(task, scene.has_modified_door(task, rows[0], rows))
        shown = arm.object_positions(made, rows, made.set_layout(rows[0]))
        recorded = data["qpos"][i, :length][:, made.task_q]
        if task in ("make-coffee", "door-lock"):  # row 0: the button of the episode before; a substep too early
            shown, recorded = shown[1:], recorded[1:]
        wrong = np.abs(shown - recorded)
        quat = [k for k, q in enumerate(made.task_q) for joint in made.joints if joint.free and 3 <= q - joint.qpos < 7]
        wrong[:, quat] = np.minimum(wrong[:, quat], np.abs(shown + recorded)[:, quat])  # a turn has two quaternions
        assert np.nanmax(wrong) < 1e-4, task


def test_the_arm_is_turned_until_the_hand_is_where_a_row_has_it(kernel: Kernel) -> None:
    made = kernel.scene("reach", False)
    start = arm.settle(made)
    mujoco.mj_resetData(made.model, made.data)
    made.data.qpos[:] = start.qpos
    mujoco.mj_kinematics(made.model, made.data)
    upright = made.data.xquat[made.hand].copy()
    wanted = start.hand_m + np.array([0.1, 0.05, -0.1])
    assert arm.reach(made, wanted) < 1e-6
    np.testing.assert_allclose(made.data.xpos[made.hand], wanted, atol=1e-6)
    np.testing.assert_allclose(made.data.xquat[made.hand], upright, atol=1e-4)


def test_a_hand_out_of_reach_leaves_a_distance_and_no_error(kernel: Kernel) -> None:
    made = kernel.scene("reach", False)
    arm.settle(made)
    assert arm.reach(made, np.array([3.0, 3.0, 3.0])) > 1


def test_fingers_close_to_the_opening_of_a_row(kernel: Kernel) -> None:
    made = kernel.scene("reach", False)
    arm.settle(made)
    arm.set_fingers(made, 0.6)
    fingers = made.data.qpos[made.arm_q + 7 : made.arm_q + 9]
    assert fingers[0] - fingers[1] == pytest.approx(0.04)
    arm.set_fingers(made, 1.0)
    assert fingers[0] - fingers[1] == pytest.approx(0.0)


def test_every_task_shows_a_joint_or_a_pose_of_its_own(kernel: Kernel) -> None:
    for task, facts in TASKS.items():
        made = kernel.scene(task, True)
        assert any(joint.entity for joint in made.joints), task
        assert len(made.points) == len(facts.entities)
        assert all(position(entity).stop <= 91 for entity in facts.entities)
