"""Clinical notes: shorthand, measurements, mention context, and patients' findings."""
