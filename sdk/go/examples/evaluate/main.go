// Evaluates the script on standard input by judges of some roles, without a gold answer, and prints its verdicts:
//
//	evaluate localhost:50051 "Make tea" critic execute <tea.txt
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"dramaturg"
	commonv1 "dramaturg/api/common/v1"
	evaluationv1 "dramaturg/api/evaluation/v1"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: evaluate HOST:PORT GOAL ROLE... <SCRIPT")
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	if err := evaluate(os.Args[1], os.Args[2], os.Args[3:], string(text)); err != nil {
		for _, violation := range dramaturg.ViolationsOf(err) {
			log.Printf("%s %s", violation.Field, violation.Description)
		}
		log.Fatalf("%s: %v", dramaturg.ReasonOf(err), err)
	}
}

func evaluate(target, goal string, roles []string, text string) error {
	gateway, err := dramaturg.Connect(target, dramaturg.ConnectOptions{Token: os.Getenv("DRAMATURG_TOKEN")})
	if err != nil {
		return err
	}
	defer gateway.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	stream, err := gateway.Evaluations.EvaluateScripts(ctx, &evaluationv1.EvaluateScriptsRequest{
		Task:             &commonv1.Task{Goal: goal},
		Roles:            roles,
		GoldAnswerSource: evaluationv1.GoldAnswerSource_GOLD_ANSWER_SOURCE_NONE,
		Candidates:       []*commonv1.Candidate{{Id: "script", Content: &commonv1.Candidate_Text{Text: text}}},
	})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, candidate := range event.GetResult().GetCandidates() {
			for _, verdict := range candidate.Verdicts {
				print(verdict)
			}
		}
	}
}

func print(verdict *commonv1.Verdict) {
	fmt.Printf("%s\t%s\n", verdict.Criterion, verdict.Outcome)
	for _, finding := range verdict.Findings {
		fmt.Printf("\tsteps %v: %s\n", finding.StepIndices, finding.Description)
	}
}
