package doctor_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// A service may look at its Redis when it starts, and say so in its log.
func ExampleDiagnose() {
	ctx, clients, stop := kit.Ready(1) // Of a server that does not tell its settings.
	defer stop()

	report := kit.Must(doctor.Diagnose(ctx, clients[0]))
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
	server := kit.Must(miniredis.Run())
	defer server.Close()
	server.RequireAuth("secret")

	report, err := doctor.Examine(context.Background(), headwaiter.Options{
		Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, Password: "guess", ForceSingleClient: true},
	})
	fmt.Println(len(report.Servers), err != nil)
	// Output: 0 true
}
