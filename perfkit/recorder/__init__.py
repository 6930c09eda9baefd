"""From replies to histograms: bulk recording, windows, intervals and outcomes, in bounded memory."""
