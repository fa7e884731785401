// Package otel has traces and metrics of locks for OpenTelemetry: who waited for whom, for how long, and what became of
// the hold.
//
//	tracer, err := otel.New(otel.Options{
//		TracerProvider: provider, // or the program's: otel.GetTracerProvider()
//		MeterProvider:  meters,
//	})
//	…
//	client, err := headwaiter.Dial(headwaiter.Options{Redis: redis, Observer: tracer})
//
// It needs OpenTelemetry's API and no SDK: which one the program has is the program's choice. With
// [observe.Observers] it goes with others.
//
// # Spans
//
// Each call that asks has a span "headwaiter wait", from the call to the grant or the error, and each hold a span
// "headwaiter hold", from the grant to the release or the loss. Both are below the span that the call was made in, and
// of kind internal. Where there is none, the wait begins a trace and the hold is below it. The context of the lease has
// the span of the hold, so what is done under the lock is below that. A call that enters a hold again by its context
// has no span, and a multilock has a wait and a hold for each of its names; its lease has none of these spans.
//
// A grant carries the identity of the hold that was released for it, in the form of W3C's traceparent, and the span of
// the wait gets a link to that span: from a call that waited for long one comes to what held it up, in another process
// too. The link is made where both sides have this tracer and the grant came with a message or in the reply to a
// release. There is none where nobody released (a lease ran out, or was taken by force), where a check was faster than
// the message, and after a multilock of several names.
//
// Attributes: headwaiter.kind (lock, semaphore, …), .name, .ticket; .outcome of a wait (granted, entered, passed,
// busy, full, timeout, cancelled, closed, replicas, other) and of a hold (released, handed_over, or the cause of the loss:
// expired, forced, replaced, forgotten, max_hold, stalled, closed; unconfirmed and unwoken where a release did not go well); .token of a hold, and
// .previous, how the hold before ended, if its owner did not give it back (expired, died, forced, stalled, forgotten).
//
// Events: "queued" (headwaiter.place, .waiting), "renewed" (.margin: seconds that were left), "renewal failed" (.margin,
// error.type, error.message), "held for long" (.held, .holder; see [headwaiter.Options].HeldTooLong), "wanted" (.held).
//
// Status: an error where the call failed or the hold was lost, with error.type as the outcome. To find a lock busy and
// to be cancelled are none.
//
// # Metrics
//
// All but headwaiter.two_masters and headwaiter.replaced have headwaiter.kind, and headwaiter.class if [Options].Class is set; those of servers have headwaiter.engine,
// .server and .client in place of these.
//
//	headwaiter.wait.duration     histogram, s       how long calls waited, by headwaiter.outcome
//	headwaiter.hold.duration     histogram, s       how long holds lasted, by outcome
//	headwaiter.attempts          counter            calls that have ended, by outcome
//	headwaiter.waiting           up-down counter    calls that wait; over all clients, the length of the queue
//	headwaiter.holds             up-down counter    holds
//	headwaiter.losses            counter            holds lost, by outcome: the cause
//	headwaiter.renewals          counter            renewals, by outcome: renewed or failed
//	headwaiter.renewal.margin    histogram, s       what was left of the lease then
//	headwaiter.holds.long        counter            holds beyond HeldTooLong
//	headwaiter.waits.long        counter            calls that waited beyond WaitedTooLong
//	headwaiter.wanted            counter            holders that had asked to be told when somebody waits, and were
//	headwaiter.handoffs          counter            grants to other clients, by message
//	headwaiter.wakeups           counter            messages that came
//	headwaiter.skipped           counter            tickets of dead clients dropped
//	headwaiter.expired           counter            leases of others found run out
//	headwaiter.rejoined          counter            tickets that a check had to queue again
//	headwaiter.missed            counter            grants whose message did not come
//	headwaiter.suspected         counter            times the server said that this client let a lease run out
//	headwaiter.given_back        counter            grants that came too late
//	headwaiter.differing_numbers counter            requests that stated another number of permits than the newest client before
//	headwaiter.died              counter            holds of dead clients that were ended
//	headwaiter.replaced          counter            clients whose identity another client has taken
//	headwaiter.two_masters       counter            connections that saw another master than the others
//	headwaiter.server.up         gauge              1 if a server answered the last request of a client, 0 if not; gone 5 minutes later
//	headwaiter.server.round_trip histogram, s       how long answers took
//	headwaiter.classes.cut       counter            calls counted as class "other": one class too many, or Class panicked
//
// Names are in no metric: a name for each order would be a series for each. A Class function makes few of many, and
// what it makes is cut at [Options].MaxClasses.
//
// # What it may not do
//
// Spans begin and end where things happen, some of it under the client's locks and on the reader of its connection. The
// SDK must not block there: export in batches (WithBatcher), not at each end (WithSyncer), and without WithBlocking.
//
// # What it costs
//
// `go test -run - -bench Cost -benchtime 1x ./contrib/otel` takes and releases one lock without a pause, with and without
// it in turn, and gives the share of the cycles that is left. On two cores with other work, medians of 15 rounds:
//
//	                            one client   eight clients
//	metrics                     0.97         0.96
//	metrics, 1 % sampled        0.98         0.97
//	metrics, everything sampled 0.59         0.85
//
// What is told of one cycle costs 2 µs with metrics, 4 µs with 1 % sampled, and about 20 µs where the SDK records both
// spans. A lock that is taken thousands of times a second wants a sampler. A note makes the message of a grant 57 bytes
// longer.
package otel
