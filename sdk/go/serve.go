package dramaturg

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	identityv1 "dramaturg/api/identity/v1"
	judgingv1 "dramaturg/api/judging/v1"
)

const (
	contract         = "dramaturg.api.judging.v1.JudgeService"
	identityContract = "dramaturg.api.identity.v1.IdentityService"
	maxMessageBytes  = 16 << 20
)

// Options says how a judge is served.
type Options struct {
	// Address to listen on. Default: a free port of 127.0.0.1.
	Address string
	// Concurrency is the most candidates of one call that are judged at once. Default: 16.
	Concurrency int
	// MaxCalls is the most calls at once; others are refused with RESOURCE_EXHAUSTED. Default: 256.
	MaxCalls int
	// TLS of the server. Default: none.
	TLS *TLS
	// DrainTimeout is the time that calls in progress have to end after Close. Default: 30 seconds.
	DrainTimeout time.Duration
}

// TLS names PEM files.
type TLS struct {
	// Certificate and Key are those of this side.
	Certificate, Key string
	// CA signs the certificates of the other side. Of a server: clients must have one.
	CA string
}

// A Server serves a judge.
type Server struct {
	// Address is the address that it listens on.
	Address string

	server   *grpc.Server
	listener *connections
	calls    *admission
	health   *healthServer
	drain    time.Duration
	ended    chan error
	close    sync.Once
}

// Serve serves a judge by gRPC: judging.v1.JudgeService, its identity, and its health.
func Serve(judge Judge, options Options) (*Server, error) {
	address := options.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	calls := &admission{most: orDefault(options.MaxCalls, 256), idle: make(chan struct{})}
	settings := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxSendMsgSize(maxMessageBytes), grpc.StreamInterceptor(calls.intercept),
	}
	if options.TLS != nil {
		config, err := options.TLS.server()
		if err != nil {
			return nil, err
		}
		settings = append(settings, grpc.Creds(credentials.NewTLS(config)))
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	made := &Server{
		Address:  listener.Addr().String(),
		server:   grpc.NewServer(settings...),
		listener: &connections{Listener: listener, open: map[*connection]bool{}},
		calls:    calls,
		health:   &healthServer{health.NewServer(), make(chan struct{})},
		drain:    options.DrainTimeout,
		ended:    make(chan error, 1),
	}
	if made.drain == 0 {
		made.drain = 30 * time.Second
	}
	concurrency := orDefault(options.Concurrency, 16)
	judgingv1.RegisterJudgeServiceServer(made.server, &judgeServer{judge: judge, concurrency: concurrency})
	identityv1.RegisterIdentityServiceServer(made.server, &identityServer{judge: judge})
	healthv1.RegisterHealthServer(made.server, made.health)
	for _, name := range []string{contract, identityContract} {
		made.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	go func() { made.ended <- made.server.Serve(made.listener) }()
	return made, nil
}

// Wait waits until the server is closed.
func (s *Server) Wait() error {
	return <-s.ended
}

// Close reports NOT_SERVING, admits the calls that have arrived, refuses new ones, and waits for calls in progress, at most for the drain timeout. Watches
// of the health, and connections without calls, do not hold it up.
func (s *Server) Close() {
	s.close.Do(func() {
		s.health.Shutdown()
		close(s.health.closing)
		time.Sleep(arrival)
		s.calls.close()
		graceful := make(chan struct{})
		go func() {
			s.server.GracefulStop()
			close(graceful)
		}()
		select {
		case <-graceful:
		case <-s.calls.idle:
			// Clients are asked to close their connections; some keep them.
			select {
			case <-graceful:
			case <-time.After(lastBytes):
			}
		case <-time.After(s.drain):
		}
		s.listener.closeAll()
		s.server.Stop()
	})
}

// identityServer serves identity.v1.IdentityService.
type identityServer struct {
	identityv1.UnimplementedIdentityServiceServer
	judge Judge
}

// GetIdentity implements IdentityService.
func (s *identityServer) GetIdentity(
	_ context.Context, request *identityv1.GetIdentityRequest,
) (*identityv1.GetIdentityResponse, error) {
	if found := CheckLimits(request); len(found) > 0 {
		return nil, InvalidArgument(found)
	}
	return &identityv1.GetIdentityResponse{Identity: &identityv1.Identity{
		Name:         s.judge.Name,
		Version:      s.judge.Version,
		Contract:     contract,
		Description:  s.judge.Description,
		Criteria:     s.judge.Criteria,
		Capabilities: s.judge.Capabilities,
	}}, only(request.Contract)
}

// CheckModel implements IdentityService. The judge calls no model that the gateway configures.
func (s *identityServer) CheckModel(
	_ context.Context, request *identityv1.CheckModelRequest,
) (*identityv1.CheckModelResponse, error) {
	return &identityv1.CheckModelResponse{}, only(request.Contract)
}

// ListModelWaits implements IdentityService.
func (s *identityServer) ListModelWaits(
	_ context.Context, request *identityv1.ListModelWaitsRequest,
) (*identityv1.ListModelWaitsResponse, error) {
	return &identityv1.ListModelWaitsResponse{}, only(request.Contract)
}

// only refuses contracts that the server does not have.
func only(asked string) error {
	if asked == "" || asked == contract {
		return nil
	}
	return InvalidArgument([]Violation{{"contract", fmt.Sprintf("is %q; this server has %s", asked, contract)}})
}

func orDefault(value, other int) int {
	if value > 0 {
		return value
	}
	return other
}

func (t *TLS) server() (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs, err = authorities(t.CA)
	}
	return config, err
}

func (t *TLS) client() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if t.CA != "" {
		if config.RootCAs, err = authorities(t.CA); err != nil {
			return nil, err
		}
	}
	if t.Certificate != "" {
		certificate, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}
