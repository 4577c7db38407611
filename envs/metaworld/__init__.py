"""The Meta-World environment of ImagineBench: a Sawyer arm at a table, 22 tasks."""

from qualcheck.envs.metaworld.adapter import MetaWorld

__all__ = ["MetaWorld"]
