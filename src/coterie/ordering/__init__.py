"""Total order in a view, by a dynamic sequencer or by a rotating token (**objects** 3.4, 6.1)."""
