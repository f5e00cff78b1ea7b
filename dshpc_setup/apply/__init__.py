"""Rendered files written: all of a run or none."""
