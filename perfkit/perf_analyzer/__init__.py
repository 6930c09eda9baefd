"""perf_analyzer's command line, files and output, on perfkit's engine."""
