package dramaturg

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	commonv1 "dramaturg/api/common/v1"
	judgingv1 "dramaturg/api/judging/v1"
)

type judgement func(context.Context, Item) ([]*commonv1.Verdict, error)

func started(t *testing.T, judge judgement, options Options) (*Server, *grpc.ClientConn) {
	t.Helper()
	made := Judge{Name: "test-judge", Version: "1.0.0", Criteria: []string{"brief"}, Judge: judge}
	server, err := Serve(made, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.server.Stop)
	connection, err := grpc.Dial(server.Address, grpc.WithInsecure(), grpc.WithBlock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return server, connection
}

func candidates(texts ...string) *judgingv1.JudgeRequest {
	request := &judgingv1.JudgeRequest{Task: &commonv1.Task{Goal: "Make tea"}}
	for i, text := range texts {
		request.Candidates = append(request.Candidates, &judgingv1.JudgeCandidate{Id: fmt.Sprint(i), Text: text})
	}
	return request
}

func judged(
	ctx context.Context, connection *grpc.ClientConn, request *judgingv1.JudgeRequest,
) (map[string]*judgingv1.JudgeResponse, error) {
	stream, err := judgingv1.NewJudgeServiceClient(connection).Judge(ctx, request)
	if err != nil {
		return nil, err
	}
	found := map[string]*judgingv1.JudgeResponse{}
	for range request.Candidates {
		response, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		found[response.CandidateId] = response
	}
	return found, nil
}

func brief(context.Context, Item) ([]*commonv1.Verdict, error) {
	return []*commonv1.Verdict{Passed("brief")}, nil
}

// blocking reports each call that it begins, and each whose context ends; it never answers by itself.
type blocking struct{ begun, ended chan string }

func newBlocking() blocking {
	return blocking{make(chan string, 100), make(chan string, 100)}
}

func (b blocking) judge(ctx context.Context, item Item) ([]*commonv1.Verdict, error) {
	b.begun <- item.Candidate.ID
	<-ctx.Done()
	b.ended <- item.Candidate.ID
	return nil, ctx.Err()
}

func TestAFailureIsThatOfItsCandidate(t *testing.T) {
	_, connection := started(t, func(_ context.Context, item Item) ([]*commonv1.Verdict, error) {
		switch item.Candidate.Text {
		case "panics":
			panic("secret detail")
		case "fails":
			return nil, errors.New("secret detail")
		case "is refused":
			return nil, NewError(
				codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_DEPENDENCY_FAILED, "the model is away", nil,
			)
		case "has two verdicts":
			return []*commonv1.Verdict{Passed("brief"), Failed("brief")}, nil
		case "has a strange verdict":
			return []*commonv1.Verdict{Passed("polite")}, nil
		}
		return brief(context.Background(), item)
	}, Options{})
	texts := []string{"passes", "panics", "fails", "is refused", "has two verdicts", "has a strange verdict", " "}
	found, err := judged(context.Background(), connection, candidates(texts...))
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		response := found[fmt.Sprint(i)]
		failure := response.GetError()
		switch text {
		case "passes":
			if response.GetAssessment().Verdicts[0].Outcome != commonv1.Outcome_OUTCOME_PASS {
				t.Errorf("%s: %v", text, response)
			}
		case " ":
			reason := response.GetAssessment().Verdicts[0].AbstainReason
			if reason != commonv1.AbstainReason_ABSTAIN_REASON_NOT_APPLICABLE {
				t.Errorf("empty: %v", response)
			}
		case "is refused":
			if failure.GetReason() != commonv1.ErrorReason_ERROR_REASON_DEPENDENCY_FAILED ||
				failure.Code != commonv1.StatusCode_STATUS_CODE_UNAVAILABLE {
				t.Errorf("%s: %v", text, response)
			}
		default:
			if failure.GetCode() != commonv1.StatusCode_STATUS_CODE_INTERNAL ||
				strings.Contains(failure.Message, "secret") {
				t.Errorf("%s: %v", text, response)
			}
		}
	}
}

func TestTheContextOfAJudgeEndsWithTheCall(t *testing.T) {
	judge := newBlocking()
	_, connection := started(t, judge.judge, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-judge.begun
		cancel()
	}()
	if _, err := judged(ctx, connection, candidates("a")); status.Code(err) != codes.Canceled {
		t.Fatalf("a cancelled call ended with %v", err)
	}
	<-judge.ended
	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := judged(ctx, connection, candidates("a")); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("a call past its deadline ended with %v", err)
	}
	<-judge.ended
}

func TestAtMostConcurrencyCandidatesAreJudgedAtOnce(t *testing.T) {
	judge := newBlocking()
	_, connection := started(t, judge.judge, Options{Concurrency: 2})
	ctx, cancel := context.WithCancel(context.Background())
	go judged(ctx, connection, candidates("a", "b", "c", "d"))
	<-judge.begun
	<-judge.begun
	cancel()
	<-judge.ended
	<-judge.ended
	if len(judge.begun) != 0 {
		t.Errorf("%d more candidates were judged", len(judge.begun))
	}
}

func TestCallsAboveTheMostAreRefused(t *testing.T) {
	judge := newBlocking()
	_, connection := started(t, judge.judge, Options{MaxCalls: 1})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go judged(ctx, connection, candidates("a"))
	<-judge.begun
	_, err := judged(context.Background(), connection, candidates("b"))
	if status.Code(err) != codes.ResourceExhausted ||
		ReasonOf(err) != commonv1.ErrorReason_ERROR_REASON_OVERLOADED || len(status.Convert(err).Details()) != 2 {
		t.Fatalf("a call above the most ended with %v", err)
	}
	health := healthv1.NewHealthClient(connection)
	answer, err := health.Check(context.Background(), &healthv1.HealthCheckRequest{Service: contract})
	if err != nil || answer.Status != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health of a busy server: %v, %v", answer, err)
	}
}

func TestCloseWaitsForCallsInProgress(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	server, connection := started(t, func(ctx context.Context, item Item) ([]*commonv1.Verdict, error) {
		close(begun)
		<-release
		return brief(ctx, item)
	}, Options{})
	answered := make(chan error, 1)
	go func() {
		_, err := judged(context.Background(), connection, candidates("a"))
		answered <- err
	}()
	<-begun
	watch := watched(t, connection, contract)
	closed := make(chan struct{})
	go func() {
		server.Close()
		close(closed)
	}()
	if state, err := watch.Recv(); err != nil || state.Status != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health of a server that closes: %v, %v", state, err)
	}
	select {
	case <-closed:
		t.Error("the server closed before the call in progress ended")
	default:
	}
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("a call in progress ended with %v", err)
	}
	<-closed
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// watched is a watch of the health that has its first status.
func watched(t *testing.T, connection *grpc.ClientConn, service string) healthv1.Health_WatchClient {
	t.Helper()
	request := &healthv1.HealthCheckRequest{Service: service}
	watch, err := healthv1.NewHealthClient(connection).Watch(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	return watch
}

func TestConnectionsWithoutCallsDoNotHoldUpClose(t *testing.T) {
	const long = time.Hour
	cases := map[string]func(*testing.T, *Server, *grpc.ClientConn){
		"no call": func(*testing.T, *Server, *grpc.ClientConn) {},
		"a watch of the health": func(t *testing.T, _ *Server, connection *grpc.ClientConn) {
			watched(t, connection, contract)
		},
		"a watch of a service that the server does not have": func(t *testing.T, _ *Server, connection *grpc.ClientConn) {
			watched(t, connection, "unknown")
		},
		"a cancelled call": func(t *testing.T, _ *Server, connection *grpc.ClientConn) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			judged(ctx, connection, candidates("a"))
		},
		"a connection that sends nothing": func(t *testing.T, server *Server, _ *grpc.ClientConn) {
			silent, err := net.Dial("tcp", server.Address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { silent.Close() })
			for deadline := time.Now().Add(10 * time.Second); server.listener.count() < 2; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the connection was not accepted")
				}
			}
		},
	}
	for name, open := range cases {
		t.Run(name, func(t *testing.T) {
			server, connection := started(t, brief, Options{DrainTimeout: long})
			open(t, server, connection)
			closed := make(chan struct{})
			go func() {
				server.Close()
				close(closed)
			}()
			select {
			case <-closed:
			case <-time.After(30 * time.Second):
				t.Fatal("the server waits")
			}
			if err := server.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCallsOfAServerThatClosesAreRefused(t *testing.T) {
	calls := &admission{most: 1, idle: make(chan struct{})}
	calls.close()
	err := calls.enter()
	if status.Code(err) != codes.Unavailable || ReasonOf(err) != commonv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN {
		t.Errorf("a call of a server that closes ended with %v", err)
	}
	<-calls.idle
}

func TestCallsInProgressEndAfterTheDrainTimeout(t *testing.T) {
	judge := newBlocking()
	server, connection := started(t, judge.judge, Options{DrainTimeout: 10 * time.Millisecond})
	answered := make(chan error, 1)
	go func() {
		_, err := judged(context.Background(), connection, candidates("a"))
		answered <- err
	}()
	<-judge.begun
	server.Close()
	<-judge.ended
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the call ended with %v", err)
	}
}

func TestLimitsOfTheContract(t *testing.T) {
	request := candidates("a", strings.Repeat("é", 200_001))
	request.Task.Goal = " \n"
	request.Candidates[0].Id = ""
	scale := &judgingv1.CriterionScale{Lowest: -1001}
	request.Criteria = []*judgingv1.Criterion{{Id: "brief", Scale: scale}}
	notANumber := math.NaN()
	request.Options = &commonv1.JudgeOptions{Sampling: &commonv1.Sampling{Temperature: &notANumber}}
	want := map[string]string{
		"options.sampling.temperature": "is not a finite number",
		"task.goal":                    "is missing or empty",
		"candidates[0].id":             "is missing or empty",
		"candidates[1].text":           "has 200001 characters; at most 200000 are allowed",
		"criteria[0].scale.lowest":     "is -1001; the least is -1000",
	}
	found := CheckLimits(request)
	if len(found) != len(want) {
		t.Errorf("found %v", found)
	}
	for _, one := range found {
		if want[one.Field] != one.Description {
			t.Errorf("%s %s", one.Field, one.Description)
		}
	}
	if found := CheckLimits(&judgingv1.JudgeRequest{Task: &commonv1.Task{Goal: "Make tea"}}); len(found) != 1 {
		t.Errorf("without candidates: %v", found)
	}
	_, connection := started(t, brief, Options{})
	_, err := judged(context.Background(), connection, request)
	if status.Code(err) != codes.InvalidArgument || len(ViolationsOf(err)) != len(want) {
		t.Errorf("the call ended with %v", err)
	}
}

func TestATokenIsNotSentInPlainTextToOtherMachines(t *testing.T) {
	for target, fine := range map[string]bool{
		"localhost:1": true, "127.0.0.1:1": true, "[::1]:1": true, "judge.example:1": false, "10.0.0.1:1": false,
	} {
		gateway, err := Connect(target, ConnectOptions{Token: "secret"})
		if (err == nil) != fine {
			t.Errorf("%s: %v", target, err)
		}
		if gateway != nil {
			gateway.Close()
		}
	}
}
