"""Settings of the whole suite."""

from hypothesis import settings

settings.register_profile("teamtune", deadline=None)  # a busy machine is no failure
settings.load_profile("teamtune")
