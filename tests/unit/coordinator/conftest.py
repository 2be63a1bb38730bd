"""Properties: a busy machine is no failure; `KRUST_EXAMPLES` looks longer."""

import os

from hypothesis import settings

settings.register_profile(
    "krust", deadline=None, max_examples=int(os.environ.get("KRUST_EXAMPLES", "100"))
)
settings.load_profile("krust")
