"""Runs cells: registry, suites, data, models, training, measures, and the pytest-benchmark files."""
