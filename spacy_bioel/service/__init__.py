"""A pipeline as a service: over HTTP for programs and people, and over MCP for agents."""
