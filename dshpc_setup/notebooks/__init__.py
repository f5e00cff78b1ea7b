"""JupyterLab in a job: its packages, how it is started, and the way to it from this machine's loopback."""
