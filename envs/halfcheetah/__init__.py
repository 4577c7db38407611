"""The HalfCheetah environment of ImagineBench ("mujoco" in its files)."""

from qualcheck.envs.halfcheetah.adapter import HalfCheetah

__all__ = ["HalfCheetah"]
