"""Models: one forward pass over a RaggedBatch and the KV pool."""
