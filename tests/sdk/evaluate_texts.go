// Evaluates the request in JSON on standard input, and prints the result as JSON. The argument is an address.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"google.golang.org/protobuf/encoding/protojson"

	"dramaturg"
	evaluationv1 "dramaturg/api/evaluation/v1"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	check(err)
	request := &evaluationv1.EvaluateTextsRequest{}
	check(protojson.Unmarshal(text, request))
	gateway, err := dramaturg.Connect(os.Args[1], dramaturg.ConnectOptions{})
	check(err)
	defer gateway.Close()
	stream, err := gateway.Evaluations.EvaluateTexts(context.Background(), request)
	check(err)
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		check(err)
		if result := event.GetResult(); result != nil {
			fmt.Println(protojson.Format(result))
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
