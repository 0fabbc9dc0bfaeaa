"""The chat: conversation, commands, saved files."""
