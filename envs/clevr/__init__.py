"""The CLEVR-Robot environment of ImagineBench ("ball" in its files)."""

from qualcheck.envs.clevr.adapter import Clevr

__all__ = ["Clevr"]
