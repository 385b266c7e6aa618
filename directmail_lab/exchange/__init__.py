"""What was sent and what came back: values, paths and their operations, bodies."""
