/** Clients of the services of a gateway. */

import { readFileSync } from "node:fs";

import { type Client, createClient, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { EvaluationService } from "../gen/dramaturg/api/evaluation/v1/evaluation_service_pb.js";
import { JudgeDirectoryService } from "../gen/dramaturg/api/evaluation/v1/judge_directory_service_pb.js";
import { RunService } from "../gen/dramaturg/api/evaluation/v1/run_service_pb.js";

/** How a gateway is reached. */
export interface ConnectOptions {
  /** A bearer token. Sent with every call; only over TLS or to this machine. */
  token?: string;
  /** PEM files of TLS. Without it and with `https`, the authorities of the system are trusted. */
  tls?: { ca?: string; certificate?: string; key?: string };
  /** The time limit of calls that set none, in milliseconds. Default: none. */
  timeoutMs?: number;
}

/** The services of a gateway. Methods are those of the contracts. */
export interface Gateway {
  readonly evaluations: Client<typeof EvaluationService>;
  readonly runs: Client<typeof RunService>;
  readonly judges: Client<typeof JudgeDirectoryService>;
}

const LOCAL = new Set(["localhost", "127.0.0.1", "[::1]"]);

/**
 * Connects to a gateway by gRPC.
 *
 * @param address E.g. `http://localhost:50051`, or `https://dramaturg.example`.
 * @throws Error if a token would be sent in plain text to another machine.
 */
export function connect(address: string, options: ConnectOptions = {}): Gateway {
  const url = new URL(address);
  if (options.token !== undefined && url.protocol !== "https:" && !LOCAL.has(url.hostname)) {
    throw new Error("a token is sent over TLS alone: the address must begin with https://");
  }
  const { ca, certificate, key } = options.tls ?? {};
  const transport = createGrpcTransport({
    baseUrl: url.origin,
    interceptors: options.token === undefined ? [] : [bearer(options.token)],
    ...(options.timeoutMs === undefined ? {} : { defaultTimeoutMs: options.timeoutMs }),
    nodeOptions: {
      ...(ca === undefined ? {} : { ca: readFileSync(ca) }),
      ...(certificate === undefined ? {} : { cert: readFileSync(certificate) }),
      ...(key === undefined ? {} : { key: readFileSync(key) }),
    },
  });
  return {
    evaluations: createClient(EvaluationService, transport),
    runs: createClient(RunService, transport),
    judges: createClient(JudgeDirectoryService, transport),
  };
}

function bearer(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
}
