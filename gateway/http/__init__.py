"""The gateway's API over HTTP: the Connect protocol and gRPC-web.

Each request is forwarded to the gRPC server of the same process, over a socket that only this process's user
can open. Authentication, limits, deadlines, quotas and logs are therefore those of gRPC.
"""
