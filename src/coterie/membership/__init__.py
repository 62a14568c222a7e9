"""VSYNC: who is in touch, and reliable multicast among them (**objects** 3.3, **transis** 17-23)."""
