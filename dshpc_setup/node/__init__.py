"""The command `dshpc-node`: what the entrypoint, the host and people run in the container."""
