"""What doctor sees beside the facts of the machine: values, and their JSON."""
