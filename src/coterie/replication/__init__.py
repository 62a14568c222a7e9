"""Engines that stand on group communication: PRIMARY and SAFE (**objects** 4, 5)."""
