"""Views of a result: values in, text or bytes out."""
