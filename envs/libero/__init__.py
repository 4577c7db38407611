"""The LIBERO environment of ImagineBench: a Panda arm, three things to carry and a basket."""

from qualcheck.envs.libero.adapter import Libero

__all__ = ["Libero"]
