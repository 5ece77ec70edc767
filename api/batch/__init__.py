"""Batches and the files they read and write: work that nobody waits for. Celery is used here and nowhere else."""
