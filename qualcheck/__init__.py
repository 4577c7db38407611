"""qualcheck: is an imagined rollout true? Replay it in the real simulator and see."""

__version__ = "0.1.0"
