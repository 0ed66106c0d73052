#!/bin/sh
# Generates the messages from the contracts into api. Requires protoc, protoc-gen-go and protoc-gen-go-grpc.
set -eu
cd "$(dirname "$0")"
protos=../../protos
mkdir -p api
find "$protos/dramaturg" -name '*.proto' -exec protoc -I "$protos" \
  --go_out=. --go_opt=module=dramaturg --go-grpc_out=. --go-grpc_opt=module=dramaturg {} +
