"""Kernels: ragged paged attention behind one interface, one room for each kind of machine."""
