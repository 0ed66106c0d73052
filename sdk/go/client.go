package dramaturg

import (
	"context"
	"errors"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	evaluationv1 "dramaturg/api/evaluation/v1"
)

// ConnectOptions says how a gateway is reached.
type ConnectOptions struct {
	// Token is a bearer token. Sent with every call; only over TLS or to this machine.
	Token string
	// TLS encrypts the connection; an empty one trusts the authorities of the system. Default: plain text.
	TLS *TLS
}

// A Gateway has the services of a gateway. Methods are those of the contracts.
type Gateway struct {
	Evaluations evaluationv1.EvaluationServiceClient
	Runs        evaluationv1.RunServiceClient
	Judges      evaluationv1.JudgeDirectoryServiceClient

	connection *grpc.ClientConn
}

// Connect connects to a gateway at host:port by gRPC. It makes the connection with the first call.
func Connect(target string, options ConnectOptions) (*Gateway, error) {
	settings := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
	}
	if options.TLS != nil {
		config, err := options.TLS.client()
		if err != nil {
			return nil, err
		}
		settings = append(settings, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	} else {
		settings = append(settings, grpc.WithInsecure())
	}
	if options.Token != "" {
		if options.TLS == nil && !local(target) {
			return nil, errors.New("a token is sent over TLS alone: set TLS")
		}
		settings = append(settings, grpc.WithPerRPCCredentials(bearer(options.Token)))
	}
	connection, err := grpc.Dial(target, settings...)
	if err != nil {
		return nil, err
	}
	return &Gateway{
		Evaluations: evaluationv1.NewEvaluationServiceClient(connection),
		Runs:        evaluationv1.NewRunServiceClient(connection),
		Judges:      evaluationv1.NewJudgeDirectoryServiceClient(connection),
		connection:  connection,
	}, nil
}

// Close closes the connection.
func (g *Gateway) Close() error {
	return g.connection.Close()
}

// local says whether host:port is on this machine.
func local(target string) bool {
	host := target
	if name, _, err := net.SplitHostPort(target); err == nil {
		host = name
	}
	address := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || address != nil && address.IsLoopback()
}

// bearer sends a token with every call.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Connect checks it.
func (b bearer) RequireTransportSecurity() bool {
	return false
}
