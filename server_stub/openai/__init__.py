"""The OpenAI front end: the model `synthetic` as a language model, with declared times."""
