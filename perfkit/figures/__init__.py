"""What is known of each figure of a load point besides its value, and the figures of servers, GPUs and machines."""
