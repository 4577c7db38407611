"""The BabyAI environment of ImagineBench."""

from qualcheck.envs.babyai.adapter import BabyAI

__all__ = ["BabyAI"]
