"""dsHPC setup: from a bare machine to `srun --gres=gpu:1` in a container."""

__version__ = "0.1.0"
