package dramaturg

import (
	"context"
	"fmt"
	"log"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	commonv1 "dramaturg/api/common/v1"
	judgingv1 "dramaturg/api/judging/v1"
)

// anyCriterion is the capability of a judge that judges criteria by their definitions.
const anyCriterion = "any-criterion"

// A Judge of texts.
type Judge struct {
	// Name is the implementation's name, in lower-case kebab case.
	Name string
	// Version is its version (semantic versioning).
	Version string
	// Description is a description in one sentence.
	Description string
	// Criteria are the criteria that it judges, in lower snake case.
	Criteria []string
	// Capabilities are those of Identity.capabilities, e.g. "any-criterion".
	Capabilities []string
	// Judge judges one candidate. Criteria without a verdict abstain. An error, or a panic, is that of this candidate
	// alone. The context ends when the caller cancels or its deadline passes. It is called concurrently.
	Judge func(ctx context.Context, item Item) ([]*commonv1.Verdict, error)
}

// An Item is one candidate to judge; never an empty one.
type Item struct {
	Task      *commonv1.Task
	Candidate Candidate
	// Reference has the steps of the reference. Empty: there is none.
	Reference []string
	// Criteria to judge, with definitions and scales where the request has them.
	Criteria []*judgingv1.Criterion
	// Pool has the other candidates of the task.
	Pool []Candidate
	// Options are the model and its sampling. Nil: those of the judge.
	Options *commonv1.JudgeOptions
}

// A Candidate has a text, with its steps as the gateway reads them.
type Candidate struct {
	// ID names the candidate within the request. It has no meaning.
	ID string
	// Text is the text; of a candidate that came as steps, one step a line.
	Text string
	// Steps are the steps, which findings refer to by index. Empty: the text has none.
	Steps []string
	// Context has the documents that it rests on, besides those of the task. For the capability "context".
	Context []*commonv1.Document
	// Conversation is judged in place of a text, for the capability "conversation", with "tool-calls" and "images".
	// Nil: a text is judged.
	Conversation *commonv1.Conversation

	reading commonv1.Reading
}

// judgeServer serves judging.v1.JudgeService.
type judgeServer struct {
	judgingv1.UnimplementedJudgeServiceServer
	judge       Judge
	concurrency int
}

// Judge implements JudgeService.
func (s *judgeServer) Judge(request *judgingv1.JudgeRequest, stream judgingv1.JudgeService_JudgeServer) error {
	criteria, err := s.check(request)
	if err != nil {
		return err
	}
	var all []Candidate
	for _, list := range [][]*judgingv1.JudgeCandidate{request.Candidates, request.Pool} {
		for _, one := range list {
			all = append(all, read(one))
		}
	}
	// The goroutines end with the call, also where it fails early.
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	answers := make(chan *judgingv1.JudgeResponse)
	free := make(chan struct{}, s.concurrency)
	go func() {
		for place := range request.Candidates {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func(place int) {
				defer func() { <-free }()
				select {
				case answers <- s.answer(ctx, request, criteria, all, place):
				case <-ctx.Done():
				}
			}(place)
		}
	}()
	for range request.Candidates {
		select {
		case answer := <-answers:
			if err := stream.Send(answer); err != nil {
				return err
			}
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	return nil
}

// answer judges the candidate at a place.
func (s *judgeServer) answer(
	ctx context.Context, request *judgingv1.JudgeRequest, criteria []*judgingv1.Criterion, all []Candidate, place int,
) *judgingv1.JudgeResponse {
	began := time.Now()
	candidate := all[place]
	item := Item{
		Task:      request.Task,
		Candidate: candidate,
		Reference: stepTexts(request.Reference),
		Criteria:  criteria,
		Pool:      append(append([]Candidate(nil), all[:place]...), all[place+1:]...),
		Options:   request.Options,
	}
	response := &judgingv1.JudgeResponse{CandidateId: candidate.ID}
	verdicts, err := s.verdicts(ctx, item)
	if err != nil {
		response.Result = &judgingv1.JudgeResponse_Error{Error: errorStatus(err)}
		return response
	}
	response.Result = &judgingv1.JudgeResponse_Assessment{Assessment: &commonv1.Assessment{
		Verdicts: verdicts,
		Reading:  candidate.reading,
		Provenance: &commonv1.Provenance{
			Name:     s.judge.Name,
			Version:  s.judge.Version,
			Contract: contract,
			Latency:  durationpb.New(time.Since(began)),
		},
	}}
	return response
}

func (s *judgeServer) verdicts(ctx context.Context, item Item) (ordered []*commonv1.Verdict, err error) {
	ids := make([]string, len(item.Criteria))
	for i, criterion := range item.Criteria {
		ids[i] = criterion.Id
	}
	if item.Candidate.reading == commonv1.Reading_READING_EMPTY {
		return emptyCandidate(ids), nil
	}
	defer func() {
		if failure := recover(); failure != nil {
			err = fmt.Errorf("panic: %v\n%s", failure, debug.Stack())
		}
	}()
	given, err := s.judge.Judge(ctx, item)
	if err != nil {
		return nil, err
	}
	return inOrder(given, ids, s.judge.Criteria)
}

// check returns the criteria to judge, after all checks of the request.
func (s *judgeServer) check(request *judgingv1.JudgeRequest) ([]*judgingv1.Criterion, error) {
	if found := CheckLimits(request); len(found) > 0 {
		return nil, InvalidArgument(found)
	}
	own := s.judge.Criteria
	for place, criterion := range request.Criteria {
		if !contains(s.judge.Capabilities, anyCriterion) && !contains(own, criterion.Id) {
			return nil, NewError(
				codes.InvalidArgument,
				commonv1.ErrorReason_ERROR_REASON_CRITERION_UNKNOWN,
				fmt.Sprintf("criteria[%d].id is %q; this judge's criteria are %s", place, criterion.Id, strings.Join(own, ", ")),
				map[string]string{"criterion": criterion.Id},
			)
		}
	}
	var found violations
	seen := map[string]bool{}
	for place, criterion := range request.Criteria {
		if seen[criterion.Id] {
			found.add(fmt.Sprintf("criteria[%d].id", place), "is %q, which is named before", criterion.Id)
		}
		seen[criterion.Id] = true
	}
	seen = map[string]bool{}
	for place, candidate := range request.Candidates {
		if seen[candidate.Id] {
			found.add(fmt.Sprintf("candidates[%d].id", place), "is %q, which is named before", candidate.Id)
		}
		seen[candidate.Id] = true
	}
	for place, candidate := range request.Pool {
		if seen[candidate.Id] {
			found.add(fmt.Sprintf("pool[%d].id", place), "is that of a candidate")
		}
	}
	if len(request.Criteria) == 0 && len(own) == 0 {
		found.add("criteria", "is empty, and the judge has none of its own")
	}
	if len(found) > 0 {
		return nil, InvalidArgument(found)
	}
	if len(request.Criteria) > 0 {
		return request.Criteria, nil
	}
	criteria := make([]*judgingv1.Criterion, len(own))
	for i, id := range own {
		criteria[i] = &judgingv1.Criterion{Id: id}
	}
	return criteria, nil
}

// read reads a candidate as the gateway did. A text that was not read is one text without steps.
func read(one *judgingv1.JudgeCandidate) Candidate {
	steps := stepTexts(one.Script)
	text := one.Text
	if text == "" {
		text = strings.Join(steps, "\n")
	}
	reading := one.Reading
	if reading == commonv1.Reading_READING_UNSPECIFIED ||
		reading == commonv1.Reading_READING_STEPS && len(steps) == 0 {
		switch {
		case strings.TrimSpace(text) == "":
			reading = commonv1.Reading_READING_EMPTY
		case len(steps) > 0:
			reading = commonv1.Reading_READING_STEPS
		default:
			reading = commonv1.Reading_READING_TEXT
		}
	}
	if reading != commonv1.Reading_READING_STEPS {
		steps = nil
	}
	return Candidate{
		ID: one.Id, Text: text, Steps: steps, Context: one.Context, Conversation: one.Conversation, reading: reading,
	}
}

func stepTexts(script *commonv1.Script) []string {
	texts := make([]string, len(script.GetSteps()))
	for i, step := range script.GetSteps() {
		texts[i] = step.Text
	}
	return texts
}

// errorStatus returns the error of a candidate. Errors without a status are logged, and not shown to the caller.
func errorStatus(err error) *commonv1.ErrorStatus {
	known, ok := status.FromError(err)
	if !ok && (err == context.Canceled || err == context.DeadlineExceeded) {
		known, ok = status.FromContextError(err), true
	}
	if !ok {
		log.Printf("a candidate could not be judged: %v", err)
		known = status.New(codes.Internal, "internal error")
	}
	reason := ReasonOf(known.Err())
	if reason == commonv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		reason = commonv1.ErrorReason_ERROR_REASON_INTERNAL
	}
	// The numbers of both are those of google.rpc.Code.
	return &commonv1.ErrorStatus{
		Code: commonv1.StatusCode(known.Code()), Reason: reason, Message: known.Message(),
	}
}
