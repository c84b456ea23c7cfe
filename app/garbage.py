"""How often this process looks for garbage."""

import gc

_ALLOCATED = 50_000


def look_rarely() -> None:
    """Look for garbage a seventieth as often as Python does by itself.

    What a command makes as it starts is no garbage: to look again and again took an eighth of that time.
    """
    gc.set_threshold(_ALLOCATED)
