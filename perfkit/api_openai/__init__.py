"""The API of OpenAI, as many servers of language models speak it, on a transport: requests of prompts, answers, and the tokens they report."""
