"""What on this machine would spoil a measurement: facts that are read, and the findings that follow from them."""
