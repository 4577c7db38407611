"""The HalfCheetah environment of ImagineBench ("mujoco" in its files)."""




