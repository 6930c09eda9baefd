"""Child processes: started, exchanged messages with, and ended in every case."""
