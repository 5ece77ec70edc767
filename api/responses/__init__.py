"""Responses that are kept between requests, and the turns of a conversation that go on from them."""
