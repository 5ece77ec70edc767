"""A soak: many clients, random kills and pauses of everything, and an audit of what is left at the end."""
