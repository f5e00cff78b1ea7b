"""A machine becomes a node of a cluster elsewhere: tokens, the service that answers to them, who asks."""
