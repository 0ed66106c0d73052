// Package dramaturg has judges and clients of dramaturg, which evaluates what language models write, by gRPC.
//
// The messages are generated from the contracts into api: sh generate.sh.
package dramaturg
