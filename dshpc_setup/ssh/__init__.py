"""ssh into a job: what a host's name asks for, the job's listener, and the client's configuration."""
