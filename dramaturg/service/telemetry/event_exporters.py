"""Sends encoded events by the exporters of OpenTelemetry's SDK, which read its variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult

from dramaturg.service.telemetry.event_records import Requests

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter

_EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_NOT_THERE = frozenset({404, 405, 501})


class TakesNoEventsError(Exception):
    """The collector takes no events at all."""


class GrpcEvents(OTLPLogExporter):
    """Sends batches of encoded events over gRPC."""

    def __init__(self, endpoint: str | None, requests: Requests) -> None:
        self._requests = requests
        super().__init__(endpoint)

    def _translate_data(self, data: Sequence[Any]) -> Any:
        return self._requests(data)

    # The exporter sets its client anew with every channel. Its own one would encode messages.
    @property
    def _client(self) -> Any:
        return self

    @_client.setter
    def _client(self, client: object) -> None:
        channel: Any = self._channel
        self._call: Any = None if client is None else channel.unary_unary(_EXPORT)

    def Export(self, request: bytes, metadata: Any, timeout: float) -> None:
        """Sends a request once.

        Raises:
            grpc.RpcError: It failed.
            TakesNoEventsError: The collector has no such method.
        """
        try:
            self._call(request, metadata=metadata, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise TakesNoEventsError from error
            raise


class HttpEvents(LogRecordExporter):
    """Sends batches of encoded events over HTTP.

    Args:
        exporter: Has the connections.
        requests: Makes the requests.
    """

    def __init__(self, exporter: HttpExporter, requests: Requests) -> None:
        self._exporter = exporter
        self._requests = requests

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        """Sends a batch.

        Raises:
            TakesNoEventsError: The collector has no such path.
        """
        result = self._exporter._client.export(self._requests(batch))
        if result.status_code in _NOT_THERE:
            raise TakesNoEventsError
        return LogRecordExportResult.SUCCESS if result.success else LogRecordExportResult.FAILURE

    def shutdown(self) -> None:
        """Ends the connections."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # the package leaves it out

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Does nothing: nothing is kept here."""
        del timeout_millis
        return True
