"""The real driver: turns over asyncio, frames over TCP, records into files.

`docs/internals/runtime.md` describes connections, the driver and every limit.
"""
