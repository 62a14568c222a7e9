"""VSYNC: who is in touch, and reliable multicast among them."""
