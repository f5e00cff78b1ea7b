"""One run of configure-environment, from the facts to a proven job."""
