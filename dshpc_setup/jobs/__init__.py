"""Jobs: what is asked for, what the cluster offers, the sbatch call, the workspace, what became of it."""
