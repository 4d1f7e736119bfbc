"""The untrusted side: a small process that forks one confined child per program.

It runs on the standard library alone, started by `boot.py` without the rest of teamtune, so that
a fork is cheap and holds nothing of the caller.
"""
