"""JSON and YAML that people and programs wrote, read into values that know their places, within limits."""
