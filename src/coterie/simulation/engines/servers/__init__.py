"""Server groups in the simulator: `--stack ONUS:SAFE:DYNSEQ:PVSYNC`, clients that know nothing."""
