"""The kernel: turns, layers, messages, views and timers, with no I/O anywhere.

Everything above the kernel is told what happened and answers with effects; everything below it
(the runtime and the simulator) carries the effects out.
"""
