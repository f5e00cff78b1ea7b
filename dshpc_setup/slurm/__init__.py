"""Slurm asked, ordered and read: its programs behind one client, its files, queue and nodes as values."""
