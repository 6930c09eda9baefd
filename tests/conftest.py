"""What holds for every test."""

import hypothesis

# a deadline would be an assertion about time, which a busy machine fails
hypothesis.settings.register_profile("perfkit", deadline=None)
hypothesis.settings.load_profile("perfkit")
