"""Linkers that read the text around a mention. Nothing outside imports this folder."""
