"""Settings of the whole suite."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers share the machine

settings.register_profile("teamtune", deadline=None)  # a busy machine is no failure
settings.load_profile("teamtune")
