package doctor_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
)

// A service may look at its Redis when it starts, and say so in its log.
func ExampleDiagnose() {
	server, err := miniredis.Run() // It does not tell its settings.
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := headwaiter.Dial(headwaiter.Options{
		Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true},
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	report, err := doctor.Diagnose(context.Background(), client)
	if err != nil {
		panic(err)
	}
	for _, w := range report.Warnings {
		fmt.Printf("%s: %s: %s\n", w.Severity, w.Setting, w.Value)
	}
	fmt.Println("endangered:", report.Endangered())
	// Output:
	// caution: maxmemory-policy: unknown
	// notice: CLIENT ID: not answered
	// notice: appendonly: unknown
	// endangered: false
}

func ExampleExamine() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	server.RequireAuth("secret")

	report, err := doctor.Examine(context.Background(), headwaiter.Options{
		Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, Password: "guess", ForceSingleClient: true},
	})
	fmt.Println(len(report.Servers), err != nil)
	// Output: 0 true
}
