"""Whether we still see: exporters, the bridge, the analysis."""
