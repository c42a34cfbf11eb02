"""The engine as a service: HTTP, WebSocket, readiness, metrics. See `app.py`."""
