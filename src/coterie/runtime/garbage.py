"""The garbage collector of a process that does nothing but run replicas.

Called by the commands that run one, after start-up; never by importing the library, because the
collector belongs to the whole program.
"""

import gc

_THRESHOLDS = (50_000, 50, 100)


def calm_collector() -> None:
    """Keep the cyclic collector from looking through what lives for ever, and from being busy.

    The hot path makes many small containers and no cycles. With the default thresholds the
    collector took up to a quarter of the time, and all of the worst latencies.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
