"""Rules for clinical notes: layout, shorthand, measurements, and the context of mentions."""
