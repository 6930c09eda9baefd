"""Spans of the server, joined to the requests that caused them: where each request's time went."""
