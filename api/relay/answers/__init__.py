"""How the raw text of an answer is read: content, reasoning and tool calls."""
