"""The family of gymnasium's MuJoCo environments."""
