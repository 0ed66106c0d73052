"""What happens around every call. The outermost comes first: see ``server_interceptors``."""

from __future__ import annotations

import grpc

from dramaturg.service.interceptors.access_log import AccessLogInterceptor
from dramaturg.service.interceptors.admission import AdmissionInterceptor
from dramaturg.service.interceptors.deadline import DeadlineInterceptor
from dramaturg.service.interceptors.error_mapping import ErrorMappingInterceptor
from dramaturg.service.interceptors.validation import ValidationInterceptor
from dramaturg.service.settings import ServerSettings


def server_interceptors(settings: ServerSettings) -> list[grpc.aio.ServerInterceptor]:
    """The interceptors of a server, outermost first.

    Whatever one of them raises passes the error mapping, and the access log sees what came of it. A call is
    admitted before its deadline is looked at, and both come before its message costs any time.
    """
    return [
        AccessLogInterceptor(),
        ErrorMappingInterceptor(),
        AdmissionInterceptor(settings.max_concurrent_calls, retry_after=settings.overload_retry_seconds),
        DeadlineInterceptor(
            default=settings.default_deadline_seconds,
            maximum=settings.maximum_deadline_seconds,
            floor=settings.minimum_deadline_seconds,
        ),
        ValidationInterceptor(),
    ]
