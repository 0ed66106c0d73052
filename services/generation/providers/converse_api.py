"""Converse of Amazon Bedrock, by the package ``boto3``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore import exceptions
from botocore.config import Config

from services.generation.calls import Call, Image
from services.generation.providers.packages import (
    Api,
    Connection,
    NoResponseError,
    Reply,
    completion,
    conversation,
    effort,
    sampling,
    schema,
    token_counts,
    wants_object,
)
from services.generation.providers.parameters import SCHEMA_BOUNDS, Dialect, Parameter

CONNECT_SECONDS = 10.0


class ConverseApi(Api):
    """The API, with AWS's chain of credentials.

    boto3 blocks: calls are made in threads. A call that is cancelled ends its wait; its thread ends with the
    response, at the latest after ``Connection.seconds``.
    """

    kind = "bedrock"
    never = frozenset({Parameter.SEED, Parameter.LOGPROBS, Parameter.TOP_LOGPROBS, *SCHEMA_BOUNDS})

    def __init__(self, connection: Connection) -> None:
        self._threads = ThreadPoolExecutor(connection.most_requests, "bedrock")
        self._session = boto3.Session(region_name=connection.region or None)
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=connection.seconds,
            retries={"total_max_attempts": 1},
            max_pool_connections=connection.most_requests,
        )
        made: dict[str, Any] = {"config": config, "endpoint_url": connection.base_url or None}
        if connection.ca_file:
            made["verify"] = connection.ca_file
        self._made = made
        self._runtime = self._session.client("bedrock-runtime", **made)

    async def send(self, call: Call, dialect: Dialect) -> Reply:
        instructions, messages = conversation(call, dialect)
        body: dict[str, Any] = {
            "modelId": call.model,
            "messages": [
                {"role": message.role.value, "content": [_block(one) for one in message.contents]}
                for message in messages
            ],
        }
        limits = sampling(call, dialect, temperature="temperature", top_p="topP", stop="stopSequences")
        cap = dialect.output_tokens(call)
        if cap is not None:
            limits["maxTokens"] = cap
        if limits:
            body["inferenceConfig"] = limits
        if instructions:
            body["system"] = [{"text": instructions}]
            if Parameter.PROMPT_CACHE not in dialect.omit:
                body["system"].append({"cachePoint": {"type": "default"}})
        output: dict[str, Any] = {}
        if effort(call, dialect):
            output["effort"] = effort(call, dialect)
        form = schema(call, dialect)
        if form is not None:
            described = {"jsonSchema": {"name": form.name, "schema": form.text}}
            output["textFormat"] = {"type": "json_schema", "structure": described}
        elif call.json_form is not None and wants_object(call, dialect):
            name = call.json_form.name
            tool = {"name": name, "inputSchema": {"json": json.loads(call.json_form.text)}}
            body["toolConfig"] = {"tools": [{"toolSpec": tool}], "toolChoice": {"tool": {"name": name}}}
        if output:
            body["outputConfig"] = output
        if dialect.extra_body:
            body["additionalModelRequestFields"] = dict(dialect.extra_body)
        return await self._in_thread(lambda: self._runtime.converse(**body))

    async def _in_thread(self, request: Callable[[], Any]) -> Reply:
        loop = asyncio.get_running_loop()
        try:
            body = await loop.run_in_executor(self._threads, request)
        except exceptions.ClientError as error:
            stated = error.response["ResponseMetadata"]
            fault = error.response["Error"]
            said = {"error": {"message": fault.get("Message", ""), "code": fault.get("Code", "")}}
            return Reply(stated["HTTPStatusCode"], stated.get("HTTPHeaders") or {}, said)
        except (exceptions.NoCredentialsError, exceptions.CredentialRetrievalError) as error:
            return Reply(401, {}, {"error": {"message": f"no credentials of AWS: {error}"}})
        except exceptions.ParamValidationError as error:
            raise ValueError(str(error)) from None
        except exceptions.BotoCoreError as error:
            unsent = isinstance(
                error,
                (
                    exceptions.EndpointConnectionError,
                    exceptions.ConnectTimeoutError,
                    exceptions.ProxyConnectionError,
                ),
            )
            untrusted = isinstance(error, exceptions.SSLError)
            raise NoResponseError(
                f"{type(error).__name__}: {error}", sent=not unsent, untrusted=untrusted
            ) from None
        return Reply(200, body["ResponseMetadata"].get("HTTPHeaders") or {}, body)

    def chat_completion(self, body: Any) -> Any:
        content: list[dict[str, Any]] = []
        calls = []
        finish = body["stopReason"]
        for block in body["output"]["message"]["content"]:
            if "text" in block:
                content.append({"type": "text", "text": block["text"]})
            elif "reasoningContent" in block:
                thought = block["reasoningContent"].get("reasoningText") or {}
                content.append({"type": "reasoning", "text": thought.get("text", "")})
            elif "toolUse" in block:
                calls.append(
                    {"function": {"name": block["toolUse"]["name"], "input": block["toolUse"]["input"]}}
                )
        usage = body.get("usage")
        counts = None
        if usage:
            read = usage.get("cacheReadInputTokens") or 0
            written = usage.get("cacheWriteInputTokens") or 0
            counts = token_counts(usage["inputTokens"] + read + written, usage["outputTokens"], cached=read)
        return completion(content, finish, usage=counts, tool_calls=calls)

    async def models(self) -> Reply | Sequence[str]:
        control = self._session.client("bedrock", **self._made)
        listed = await self._in_thread(lambda: control.list_foundation_models(byOutputModality="TEXT"))
        if listed.status != 200:
            return listed
        names = [entry["modelId"] for entry in listed.body["modelSummaries"]]
        profiles = await self._in_thread(lambda: control.list_inference_profiles(maxResults=1000))
        if profiles.status == 200:
            names += [entry["inferenceProfileId"] for entry in profiles.body["inferenceProfileSummaries"]]
        return names

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._runtime.close()


def _block(content: str | Image) -> dict[str, Any]:
    if isinstance(content, str):
        return {"text": content}
    return {"image": {"format": content.media_type.removeprefix("image/"), "source": {"bytes": content.data}}}
