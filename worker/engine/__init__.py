"""The engine: token ids in, token ids and text out. It knows neither Redis nor HTTP."""
