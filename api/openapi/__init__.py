"""The description of the API that clients and their tools can read, made of the types that check requests."""
