"""Podman by its own command, in the words of Docker's client, and what its compose would do."""
