"""What tells the members of gymnasium's MuJoCo family apart.

Source: the class of each environment in gymnasium 1.x (`gymnasium/envs/mujoco/*_v4.py`, `*_v5.py`) and its
documentation pages.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """One environment: a row is qpos without its first `excluded` numbers, qvel, then contact forces if any."""

    model: str  # file among gymnasium's assets
    qpos: tuple[str, ...]  # a name for each number of qpos, ending in its unit
    qvel: tuple[str, ...]
    excluded: int  # leading coordinates that a row leaves out by default: x, and y where it can move sideways
    action: int
    frame_skip: int
    substep_seconds: float
    action_limit: float = 1.0
    clip: float = 0.0  # velocities are shown clipped to +- this; 0: as they are
    contacts: int = 0  # columns of contact forces behind the velocities, clipped to +-1
    healthy: tuple[tuple[int, float, float], ...] = ()  # (place in qpos, lowest, highest) of an episode that goes on
    horizon: int = 1000


def _joints(names: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    each = names.split()
    return tuple(f"{name}_rad" for name in each), tuple(f"{name}_rate_rad_s" for name in each)


_PLANAR = ("x_m", "height_m", "pitch_rad"), ("x_velocity_m_s", "z_velocity_m_s", "pitch_rate_rad_s")


def _planar(names: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    angles, rates = _joints(names)
    return _PLANAR[0] + angles, _PLANAR[1] + rates


_HOPPER = _planar("thigh leg foot")
_WALKER = _planar("right_thigh right_leg right_foot left_thigh left_leg left_foot")
_CHEETAH = _planar("bthigh bshin bfoot fthigh fshin ffoot")
_LEGS = _joints("hip_1 ankle_1 hip_2 ankle_2 hip_3 ankle_3 hip_4 ankle_4")
_ANT = (
    ("x_m", "y_m", "height_m", "quat_w", "quat_x", "quat_y", "quat_z", *_LEGS[0]),
    ("x_velocity_m_s", "y_velocity_m_s", "z_velocity_m_s", "roll_rate_rad_s", "pitch_rate_rad_s", "yaw_rate_rad_s",
     *_LEGS[1]),
)  # fmt: skip
_SWIMMER = (
    ("x_m", "y_m", "heading_rad", *_joints("joint_1 joint_2")[0]),
    ("x_velocity_m_s", "y_velocity_m_s", "heading_rate_rad_s", *_joints("joint_1 joint_2")[1]),
)

_HOPPER_HEALTHY = ((1, 0.7, float("inf")), (2, -0.2, 0.2))
_WALKER_HEALTHY = ((1, 0.8, 2.0), (2, -1.0, 1.0))
_ANT_HEALTHY = ((2, 0.2, 1.0),)


def _hopper() -> Member:
    return Member("hopper.xml", *_HOPPER, 1, 3, 4, 0.002, clip=10.0, healthy=_HOPPER_HEALTHY)


def _walker(model: str) -> Member:
    return Member(model, *_WALKER, 1, 6, 4, 0.002, clip=10.0, healthy=_WALKER_HEALTHY)


def _ant(contacts: int) -> Member:
    return Member("ant.xml", *_ANT, 2, 8, 5, 0.01, contacts=contacts, healthy=_ANT_HEALTHY)


_CHEETAH_MEMBER = Member("half_cheetah.xml", *_CHEETAH, 1, 6, 5, 0.01)
_SWIMMER_MEMBER = Member("swimmer.xml", *_SWIMMER, 2, 2, 4, 0.01)

MEMBERS: dict[str, Member] = {
    "Ant-v4": _ant(0),
    "Ant-v5": _ant(78),  # six numbers of each of 13 bodies; the world's are left out
    "HalfCheetah-v4": _CHEETAH_MEMBER,
    "HalfCheetah-v5": _CHEETAH_MEMBER,
    "Hopper-v4": _hopper(),
    "Hopper-v5": _hopper(),
    "Swimmer-v4": _SWIMMER_MEMBER,
    "Swimmer-v5": _SWIMMER_MEMBER,
    "Walker2d-v4": _walker("walker2d.xml"),
    "Walker2d-v5": _walker("walker2d_v5.xml"),
}
