"""Other systems that people would pick, as they come: three servers each, and a client of ours.

What is installed of them is measured beside us in the same run. Their clients are as lean as the
protocol allows (bytes made once, answers matched by position or number), so that a comparison shows
the servers and not a library. Each promises something else; `PeerSystem.promise` says what.
"""
