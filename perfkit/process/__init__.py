"""Child processes: started, spoken to and stopped."""
