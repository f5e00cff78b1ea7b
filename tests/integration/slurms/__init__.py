"""Slurm's real daemons of two Debian suites, started on what is rendered for a machine."""
