"""Engines on group communication: PRIMARY and SAFE (**objects** 4, 5), ONUS (**rsp**)."""
