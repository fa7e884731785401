package search

// Scopes are what the tests of this package search. Each goes far in one direction, so that all of it can
// be gone through; wide ones, of which only samples can be seen, are in Wide.
func Scopes() []*Scope {
	once := Client{Slots: 1, Calls: 1, Weight: 1}
	twice := Client{Slots: 1, Calls: 2, Weight: 1}
	double := Client{Slots: 2, Calls: 1, Weight: 1}
	return []*Scope{
		{
			Name: "two clients and a fault", Clients: []Client{once, once}, Permits: 1, Whole: true,
			Late: 1, Faults: 1, Cancels: 1, Drops: 1,
		}, {
			Name: "two clients that come back", Clients: []Client{twice, twice}, Permits: 1, Whole: true,
			Late: 1, Cancels: 1, Drops: 1,
		}, {
			Name: "three clients", Clients: []Client{twice, once, once}, Permits: 1, Whole: true,
			Faults: 1,
		}, {
			Name: "two calls at a time", Clients: []Client{twice, double}, Permits: 1, Whole: true,
			Faults: 1,
		}, {
			Name: "two calls at a time, a fault and a delay", Clients: []Client{once, double}, Permits: 1,
			Late: 1, Faults: 1,
		}, {
			Name: "a listener at a replica", Clients: []Client{once, once, once}, Permits: 1, Whole: true, Replica: 2,
			Late: 1,
		}, {
			Name: "any order", Clients: []Client{once, once}, Permits: 1, Async: true,
		}, {
			Name: "semaphore", Clients: []Client{once, {1, 1, 2, 0}, once}, Permits: 2, Whole: true,
			Faults: 1, Cancels: 1,
		}, {
			Name: "readers and a writer", Clients: []Client{once, {1, 1, 3, 0}, once}, Permits: 3, Whole: true, Shared: true,
			Faults: 1, Cancels: 1,
		}, {
			Name: "a cohort and a stranger", Clients: []Client{{2, 2, 1, 1}, once}, Permits: 1,
			Faults: 1, Cancels: 1,
		}, {
			Name: "a cohort and a delay", Clients: []Client{{2, 1, 1, 1}, once}, Permits: 1,
			Late: 1, Faults: 1, Drops: 1,
		},
	}
}

// Wide returns scopes for random walks.
func Wide() []*Scope {
	lock := []Client{{2, 3, 1, 0}, {2, 3, 1, 0}, {1, 3, 1, 0}}
	permits := []Client{{2, 3, 1, 0}, {2, 3, 2, 0}, {1, 3, 1, 0}}
	return []*Scope{
		{Name: "lock", Clients: lock, Permits: 1, Late: 8, Faults: 6, Cancels: 4, Drops: 3},
		{Name: "lock, any order", Clients: lock, Permits: 1, Async: true, Faults: 5, Cancels: 4, Drops: 3},
		{Name: "lock, a listener at a replica", Clients: lock, Permits: 1, Replica: 1, Late: 8, Faults: 6, Cancels: 4, Drops: 3},
		{Name: "cohorts", Clients: []Client{{2, 4, 1, 2}, {2, 3, 1, 1}, {1, 3, 1, 0}}, Permits: 1, Late: 8, Faults: 6, Cancels: 4, Drops: 3},
		{Name: "semaphore", Clients: permits, Permits: 3, Late: 8, Faults: 6, Cancels: 4, Drops: 3},
		{Name: "readers and writers", Clients: permits, Permits: 2, Shared: true, Late: 8, Faults: 6, Cancels: 4, Drops: 3},
	}
}
