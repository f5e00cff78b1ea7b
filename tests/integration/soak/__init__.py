"""One cluster whose machine changes from start to start; and what stands in for faults."""
