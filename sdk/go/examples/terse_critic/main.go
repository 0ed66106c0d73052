// A critic: it finds steps that say the same, word for word. Other criteria abstain.
//
//	PORT=50099 terse_critic
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"dramaturg"
	commonv1 "dramaturg/api/common/v1"
)

var terseCritic = dramaturg.Judge{
	Name:        "terse-critic",
	Version:     "1.0.0",
	Description: "Finds steps that say the same, word for word.",
	Criteria:    []string{"no_missing_steps", "no_redundant_steps", "no_duplicate_steps"},
	Judge: func(_ context.Context, item dramaturg.Item) ([]*commonv1.Verdict, error) {
		if len(item.Candidate.Steps) == 0 {
			return nil, nil
		}
		var order []string
		places := map[string][]int{}
		for index, step := range item.Candidate.Steps {
			words := strings.ToLower(strings.Join(strings.Fields(step), " "))
			if places[words] == nil {
				order = append(order, words)
			}
			places[words] = append(places[words], index)
		}
		var findings []*commonv1.Finding
		for _, words := range order {
			if steps := places[words]; len(steps) > 1 {
				kind := commonv1.FindingKind_FINDING_KIND_DUPLICATE_STEP
				findings = append(findings, dramaturg.NewFinding(kind, "These steps say the same.", steps...))
			}
		}
		if len(findings) == 0 {
			return []*commonv1.Verdict{dramaturg.Passed("no_duplicate_steps")}, nil
		}
		return []*commonv1.Verdict{dramaturg.Failed("no_duplicate_steps", findings...)}, nil
	},
}

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "50099"
	}
	server, err := dramaturg.Serve(terseCritic, dramaturg.Options{Address: "127.0.0.1:" + port})
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt, syscall.SIGTERM)
	fmt.Printf("serving on %s\n", port)
	<-stopped
	server.Close()
}
