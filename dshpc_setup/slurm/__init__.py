"""Slurm's own files, queue and nodes, read into values."""
