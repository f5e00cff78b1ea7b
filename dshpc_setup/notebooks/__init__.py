"""JupyterLab and code-server in a job: their packages, how they are started, and the way to them."""
