package dramaturg

import (
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	commonv1 "dramaturg/api/common/v1"
)

// arrival is the time that calls which have arrived at a closing server have to be admitted: their handlers may not run yet.
const arrival = 100 * time.Millisecond

// lastBytes is the time that clients have to close their connections once no call is in progress.
const lastBytes = 500 * time.Millisecond

// admission limits the calls at once, and refuses calls of a server that closes. Health and identity are answered always.
type admission struct {
	most int
	// idle is closed when the server closes and no call is in progress.
	idle chan struct{}

	mutex  sync.Mutex
	now    int
	closed bool
}

func (a *admission) intercept(
	service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	if _, ok := service.(*judgeServer); ok {
		if err := a.enter(); err != nil {
			return err
		}
		defer a.leave()
	}
	return handle(service, stream)
}

func (a *admission) enter() error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.closed {
		return NewError(
			codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the server is shutting down", nil,
		)
	}
	if a.now >= a.most {
		return NewRetryableError(
			codes.ResourceExhausted,
			commonv1.ErrorReason_ERROR_REASON_OVERLOADED,
			"the server has too many calls",
			map[string]string{"limit": strconv.Itoa(a.most)},
			time.Second,
		)
	}
	a.now++
	return nil
}

func (a *admission) leave() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.now--
	if a.closed && a.now == 0 {
		close(a.idle)
	}
}

func (a *admission) close() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.closed = true
	if a.now == 0 {
		close(a.idle)
	}
}

// healthServer ends watches when the server closes. Those of health.Server last as long as their clients want.
type healthServer struct {
	*health.Server
	closing chan struct{}
}

// Watch implements Health. The status changes once, when the server closes.
func (s *healthServer) Watch(request *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	send := func() error {
		answer, err := s.Check(stream.Context(), request)
		if err != nil {
			answer = &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVICE_UNKNOWN}
		}
		return stream.Send(answer)
	}
	if err := send(); err != nil {
		return err
	}
	select {
	case <-s.closing:
		return send()
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

// connections is a listener whose connections can be closed, also those that have sent nothing yet, for which
// grpc.Server waits.
type connections struct {
	net.Listener

	mutex sync.Mutex
	open  map[*connection]bool
}

type connection struct {
	net.Conn
	of *connections
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	made := &connection{accepted, c}
	c.open[made] = true
	return made, nil
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mutex.Lock()
	delete(c.of.open, c)
	c.of.mutex.Unlock()
	return c.Conn.Close()
}

func (c *connections) count() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.open)
}

func (c *connections) closeAll() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for one := range c.open {
		one.Conn.Close()
	}
}
