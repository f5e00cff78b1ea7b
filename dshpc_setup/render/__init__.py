"""A plan as texts: Slurm's files, and the compose file with its GPU stanza and its rights."""
