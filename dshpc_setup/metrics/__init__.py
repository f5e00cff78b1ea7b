"""Metrics for Prometheus: what is known of GPUs, nodes, queue and scheduler, as text or served by HTTP."""
