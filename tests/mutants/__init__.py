"""Mutants: small faults put into a copy of the code, each of which a test has to notice.

`python -m tests.mutants`, which is `make mutants`, tries those of table.toml. It is not part of the
tests, as it takes twenty minutes and more.
"""
