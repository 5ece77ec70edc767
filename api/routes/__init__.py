"""Thin views: each names its path and hands over to the pipeline and the relay."""
