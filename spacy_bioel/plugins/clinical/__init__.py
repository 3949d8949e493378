"""Clinical notes: shorthand, measurements, the context of mentions, findings of patients."""
