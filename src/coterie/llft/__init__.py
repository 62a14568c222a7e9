"""Leader and followers for programs (**llft**): an engine without input and output."""
