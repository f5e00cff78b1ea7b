"""Workflows: jobs that wait for each other, as one file declares them."""
