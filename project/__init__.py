"""The example project: flow_app at work in an ordinary Django site."""
