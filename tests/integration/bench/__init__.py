"""Made-up GPU machines with a real engine each: namespaces of their own, nothing of them outside."""
