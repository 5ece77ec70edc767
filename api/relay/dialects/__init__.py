"""The wire formats in which a job's events are told, one a module."""
