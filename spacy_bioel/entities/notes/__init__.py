"""Clinical notes: layout, shorthand, measurements and context."""
