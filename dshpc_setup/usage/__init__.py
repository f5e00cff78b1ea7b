"""What each job has used: its GPUs, CPUs and memory; kept when Slurm has forgotten it, and added up."""
