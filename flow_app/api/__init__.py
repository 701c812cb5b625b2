"""The REST API: ``path("flow/", include("flow_app.api.urls"))``. It needs ``pip install 'flow-app[api]'``."""
