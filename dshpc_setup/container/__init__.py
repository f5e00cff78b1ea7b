"""What runs as root in the container: its start, its reconfiguration, its users, its key, its end."""
