"""Recorded histories: files of what clients saw, their verdicts, and pictures of contradictions.

The histories may be of any system; `coterie check` is the command. The chapters: `edn` (the
notation of Jepsen's files), `reading` (from the lines of a file to calls), `objects` (which models
there are, and how calls become operations), `transactions` (histories of transactions that append
to lists), `judging` (the verdict and its evidence, with the lines of the file), `picture` (the
evidence as a page).
"""
