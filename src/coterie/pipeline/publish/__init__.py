"""What others read: event tables, figures, drawings and the report."""
