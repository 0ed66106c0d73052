"""The web console: runs, judges, evaluations and labelling in a browser.

Pages are rendered by the HTTP server of the gateway. Every page calls the gateway's own gRPC server with the
credentials of its visitor: permissions, tenants, limits and quotas are those of gRPC.
"""
