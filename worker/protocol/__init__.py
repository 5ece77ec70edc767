"""What the worker and its clients say to each other: jobs, events, keys and the queue's verbs.

Imports only the standard library, msgspec and redis, so that the API can depend on it without loading torch.
"""
