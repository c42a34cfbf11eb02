"""A recorded run as a server: the same bytes at the same times after a request, over HTTP.

Reading order: `book` (what of a run can be served again), `server` (serves it on time).
"""
