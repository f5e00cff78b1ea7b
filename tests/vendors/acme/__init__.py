"""Acme: a made-up vendor of GPUs, for tests. Its driver is `acme`, and Slurm knows nothing of it."""
