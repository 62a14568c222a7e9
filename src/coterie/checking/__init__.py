"""Checking: whether what was promised was kept, from the records of a run.

`linearizability` judges what clients saw, without knowing the order inside. The other modules
judge what the members of a group recorded: each check is a plain function, named as in the paper.
"""
