"""The benchmarks, one `coterie bench` command each, with its report."""
