"""What holds for every test."""

import signal

import hypothesis

# a deadline would be an assertion about time, which a busy machine fails
hypothesis.settings.register_profile("perfkit", deadline=None)
hypothesis.settings.load_profile("perfkit")

# the tests of SIGHUP start children, which would inherit that `nohup` ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)
