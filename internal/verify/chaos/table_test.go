package chaos

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// A fault is a row of the table: what happens, in which part of the campaign, and what shows that it does no harm. A fault
// whose case is next to its code has only the names of those tests.
type fault struct {
	row       string // part of the campaign, and the row of the catalogue of faults if there is one
	what      string
	shown     *how
	elsewhere []string
}

// A how is the case of a fault: with a load of processes on one server, or by itself on servers that it starts.
type how struct {
	under func(*testing.T, *run)
	load  []func(*options) // how that load differs from others
	by    func(*testing.T)
	brief bool // it is in the short form
	alone bool // it measures recoveries, so in the long form nothing else runs
}

func under(f func(*testing.T, *run), load ...func(*options)) *how { return &how{under: f, load: load} }
func by(f func(*testing.T)) *how                                  { return &how{by: f} }

func (h *how) short() *how    { h.brief = true; return h }
func (h *how) measures() *how { h.alone = true; return h }

func (f fault) name() string {
	if strings.HasSuffix(f.row, "/") {
		return f.row + f.what
	}
	return f.row + " " + f.what
}

// run is the one runner of all cases. A load must have held before anything happens to it; when all is over, each of its
// workers that lives must hold again, and what all of them saw is judged.
func (f fault) run(t *testing.T) {
	if !f.shown.alone || !long() {
		t.Parallel()
	}
	if f.shown.by != nil {
		f.shown.by(t)
		return
	}
	r := begin(t, f.shown.load...)
	f.shown.under(t, r)
	r.everybody()
	r.finish()
}

func TestFaults(t *testing.T) {
	t.Cleanup(func() { failovers.write(t) })
	left := 0
	for _, f := range table {
		switch {
		case f.shown == nil: // Other tests show it.
		case testing.Short() && !f.shown.brief:
			left++
		default:
			t.Run(f.name(), f.run)
		}
	}
	if left > 0 {
		t.Logf("left out: %d cases, which go test -run TestFaults ./internal/verify/chaos runs", left)
	}
}

// table are the rows of the catalogue: C clients, S servers, N network and messages, I inputs and size, P the other
// primitives, R Redlock. After them are the rest of the campaign and the deployments.
var table = slices.Concat([]fault{
	{"clients/C1", "a holder is killed", under(aHolderIsKilled).measures().short(), []string{"family.TestTheNextHoldsWhenTheLeaseOfAKilledProcessEnds"}},
	{"clients/C2", "a holder is paused past its lease", under(aHolderIsPausedPastItsLease, ends("expired")), []string{"family.TestAProcessThatWasStoppedPastItsLeaseSeesTheLossAtItsFirstLook"}},
	{"clients/C3", "renewals are starved", under(renewalsAreStarved), []string{"family.TestConformance"}},
	{"C4", "work ends without a release", nil, []string{"family.TestConformance", "family.TestALossEndsAllLeasesOfAHoldSaysWhyAndFreesNobody"}},
	{"clients/C5", "waiters in front are killed", under(waitersInFrontAreKilled).measures().short(), []string{"fairlock.TestAThousandDeadClientsInFrontAreSkippedAtOnce", "model.TestADeadProcessWithThousandsOfTicketsCostsNoGrantLease"}},
	{"clients/C5", "one client in front is stopped", under(stoppedInFront(1)).measures(), nil},
	{"clients/C5", "many clients in front are stopped", under(stoppedInFront(10)).measures(), nil},
	{"clients/C6", "a waiter is paused", under(aWaiterIsPaused, ends("expired")), nil},
	{"clients/C7", "a wait is cancelled at the moment of its grant", under(aWaiterGivesUpAtTheMomentOfTheGrant, steady, func(o *options) { o.plan.Cancel = 300 }).measures(), []string{"family.TestConformance"}},
	{"C8", "waits of no, little and endless time", nil, []string{"fairlock.TestACancelledCallReturnsAtOnceWhileRedisIsUnreachable", "family.TestCallsWithAContextThatHasEndedSendNothing", "fairlock.TestAWaitThatEndsTellsPlaceAndTimeAndWhy", "family.TestATryThatFailsLeavesNoTrace"}},
	{"C11", "two processes are copies of each other", nil, []string{"family.TestTheNextHoldsWhenTheLeaseOfAKilledProcessEnds"}},
	{"C12", "a hold that was lost is entered again", nil, []string{"reentrant.TestALostContextAsksAnewAndGetsAHigherToken", "family.TestALossEndsAllLeasesOfAHoldSaysWhyAndFreesNobody"}},
	{"C13", "a release comes twice, or after the loss", nil, []string{"family.TestALossEndsAllLeasesOfAHoldSaysWhyAndFreesNobody", "family.TestAReleaseThatIsRepeatedFreesNobodyElse", "keeper.TestAReleaseAfterALossIsNeverNil"}},
	{"C14", "a client is closed", nil, []string{"family.TestConformance", "fairlock.TestCloseLeavesNothingOfACallAtAnyMoment"}},
	{"clients/C15", "a process dies as a hold goes to another", under(aProcessDiesAsAHoldGoesToAnother, steady).measures(), []string{"fairlock.TestAHoldThatNobodyAdoptsIsFreeAfterOneGrantLease", "sim.TestEachKindAlone"}},
	{"C16", "a client dies or is stopped that keeps what no call uses", nil, []string{"core.TestAHoldThatNobodyUsesIsShortAndGivenBackInTime"}},
	{"clients/", "nothing is left after kills and cancels", by(nothingIsLeft), nil},

	{"servers/S1", "the server restarts empty", under(theServerRestartsEmpty, twice, ends("forgotten", "unconfirmed")).measures().short(), []string{"family.TestALossEndsAllLeasesOfAHoldSaysWhyAndFreesNobody"}},
	{"servers/S2", "it is away for a lease and keeps its data", under(itKeepsItsData(true), args("--appendonly", "yes", "--appendfsync", "always"), lossy), nil},
	{"servers/S2", "it is away for a lease and keeps most of its data", under(itKeepsItsData(false), args("--appendonly", "yes", "--appendfsync", "everysec"), twice, lossy), nil},
	{"servers/S3", "it restarts from an older state", under(itRestartsFromAnOlderState, twice, lossy), []string{"fairlock.TestTokensRiseOverTheReturnOfAnEarlierState"}},
	{"servers/S4", "scripts are flushed", under(scriptsAreFlushed, steady).short(), nil},
	{"servers/S5", "keys are deleted", under(keysAreDeleted, twice, ends("forgotten")), []string{"countdown.TestAServerThatForgetsLetsNobodyPass"}},
	{"servers/S6", "subscribers are killed", under(subscribersAreKilled, steady).measures().short(), nil},
	{"servers/S7", "connections are killed", under(connectionsAreKilled, steady).short(), nil},
	{"servers/S8", "a subscriber does not read", under(aSubscriberDoesNotRead, steady, args("--client-output-buffer-limit", "pubsub", "262144", "65536", "2")), nil},
	{"servers/S9", "the server sleeps beyond a lease", under(itSleepsBeyondALease, brieflyHeld, lossy), []string{"family.TestALossEndsAllLeasesOfAHoldSaysWhyAndFreesNobody"}},
	{"servers/S9", "it is stopped beyond a lease", under(itIsStoppedBeyondALease, brieflyHeld, lossy), nil},
	{"servers/S10", "it is busy with a script", under(itIsBusyWithAScript, args("--lua-time-limit", "200"), lossy), nil},
	{"servers/S10", "it is busy with a script that has written", under(itIsBusyWithAScriptThatHasWritten, args("--lua-time-limit", "200"), twice, lossy), nil},
	{"servers/S11", "its memory is full", under(itsMemoryIsFull, hears("OOM")), []string{"model.TestFullMemoryStopsOnlyWhoWouldAdd"}},
	// While there is nothing left to evict, memory is full.
	{"servers/S12", "locks are evicted, allkeys-lru", under(locksAreEvicted("allkeys-lru"), twice, ends("forgotten"), hears("OOM")), nil},
	{"servers/S12", "locks are evicted, allkeys-random", under(locksAreEvicted("allkeys-random"), twice, ends("forgotten"), hears("OOM")), nil},
	{"servers/S12", "locks are evicted, volatile-ttl", under(locksAreEvicted("volatile-ttl"), twice, ends("forgotten"), hears("OOM")), nil},
	{"servers/S13", "it cannot save", under(itCannotSave, args("--save", "3600", "100000000"), hears("MISCONF"), ends("unconfirmed", "expired")), nil},
	{"servers/S14", "it loads", under(itLoads, slowLoad, twice, lossy), nil},
	{"servers/S14", "it has lost its master", under(itHasLostItsMaster, lossy, hears("READONLY")), nil},
	{"servers/S15", "it is demoted", under(itIsDemoted, hears("READONLY"), ends("unconfirmed", "expired")), nil},
	{"servers/S16", "it has too few replicas", under(itHasTooFewReplicas, hears("NOREPLICAS"), ends("unconfirmed", "expired")), nil},
	{"servers/S17", "a replica is promoted that does not know the lock", under(aReplicaIsPromoted, through, twice, lossy, hears("READONLY", "LOADING")), nil},
	{"servers/S20", "its clock steps forward", under(itsClockStepsForward, ownClock, twice, ends("expired", "forgotten"), func(o *options) { o.keep += time.Hour }), []string{"fairlock.TestTokensRiseWhereTheClockOfTheServerSteppedBack"}},
	{"servers/S20", "its clock steps back", under(itsClockStepsBack, ownClock, ends("expired", "forgotten"), func(o *options) { o.keep += 24 * time.Hour }), nil},
	// A worker whose connection breaks now gets no other.
	{"servers/S21", "it refuses connections", under(itRefusesConnections, ends("expired", "unconfirmed")), nil},
	{"S22", "rights are missing, or taken away", nil, []string{"fairlock.TestAUserThatLacksARightIsToldWhichAtTheStart", "fairlock.TestAUserThatMayDoNothingAnyMoreIsToldAndLeavesNothing", "fairlock.TestAWaiterWhoseChannelsAreTakenGetsInByItsOwnChecks", "fairlock.TestAReleaseThatMayNotPublishSaysSoAndTheNextGetsInByItself"}},
	{"S23", "a key has another type", nil, []string{"family.TestAKeyOfAnotherTypeIsReportedAndLeftAlone", "fairlock.TestAKeyThatChangesItsTypeEndsHoldsAndWaits", "model.TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite"}},
	// Conformance has a deployment of this kind, too.
	{"S24", "it allows little", nil, []string{"fairlock.TestACommandThatAProviderTookAwayIsNamed", "family.TestTheRightsOfThePageAreEnoughForAll"}},
	{"servers/S25", "idle connections are cut", under(idleConnectionsAreCut, steady), nil},

	{"network/N1", "wake-ups are lost", under(wakeUpsAreLost, through).measures(), []string{"family.TestAGrantWhoseMessageIsLostIsFoundByACheckAndCounted"}},
	{"network/N2", "messages are doubled and replayed", under(messagesAreDoubled, steady), []string{"core.TestALateOrSecondNoticeOfAGrantIsDropped", "core.TestAStaleGrantIsConfirmedByARenewal", "core.TestWhatIsNotOursIsForged", "event.TestAMessageOpensNothingButItsGeneration"}},
	{"network/N3", "a message overtakes the reply", under(aMessageOvertakesTheReply, steady).short(), nil},
	{"network/N4", "replies are cut", under(repliesAreCut, steady, through).short(), []string{"family.TestARequestWhoseReplyIsLostHasItsEffectOnce"}},
	{"network/N5", "requests run late", under(requestsRunLate, through, lossy), []string{"core.TestAReleaseIsSentAgainAfterTheNotAfterOfALostRequest"}},
	{"N6", "a reply comes after the lease has ended", nil, []string{"core.TestAGrantThatRanOutIsGivenBackUnderItsOldNumber", "core.TestAHoldIsLostBeforeTheServerEndsItsLease"}},
	{"network/N7", "nothing moves either way", under(nothingMoves, through, lossy), []string{"fairlock.TestCloseReturnsWhenItsContextEndsWhileRedisIsUnreachable"}},
	{"network/N8", "everything to the server is lost", under(oneWayLosesEverything(faults.ToServer), through, lossy), nil},
	{"network/N8", "everything to the clients is lost", under(oneWayLosesEverything(faults.ToClient), through, lossy), nil},
	{"network/N9", "the network is slow", under(theNetworkIsSlow, steady, through).measures(), nil},
	{"network/N10", "the server is cut from one client", under(theServerIsCutFromOneClient, steady), nil},

	{"I1", "names are unusual", nil, []string{"family.TestConformance", "family.TestUnusableNamesAreRefusedBeforeRedis", "family.TestObjectsOfOneNameDoNotMeet"}},
	{"I2", "objects have one name", nil, []string{"family.TestObjectsOfOneNameDoNotMeet"}},
	{"I3", "times are unusable", nil, []string{"family.TestUnusableOptionsAreRefusedBeforeRedis", "fairlock.TestExtremeTimesWork", "waitqueue.TestTheFirstLeaseIsNoLongerThanTheMaximumHold"}},
	{"I4", "counts are at their limits", nil, []string{"countdown.TestTheLargestCountIsExact", "semaphore.TestAsManyPermitsAsCanBeCountedAreCountedExactly", "family.TestUnusableNumbersAreRefusedBeforeRedis", "semaphore.TestRequestsForNoPermitsAreRefusedBeforeRedis", "reentrant.TestMoreEntriesThanTheLimitAreRefused"}},
	{"I5", "times have 16 digits", nil, []string{"waitqueue.TestTheLargestTimesAreExactInLua"}},
	{"I6", "100,000 wait", nil, []string{"model.TestALiveTicketIsReachedBehindThousandsOfSilentOnes", "lua.TestNoScriptTakesLong"}},
	{"I7", "many clients wait for one lock", nil, []string{"fairlock.TestOnlyTheHeadIsWoken", "family.TestAHandOffIsTwoScriptsAndOneMessage"}},
	{"I8", "a client uses many names", nil, []string{"waitqueue.TestAClientThatHasNothingToDoHasNoTimersAndNoSubscriptions", "fairlock.TestManyHoldsAreRenewedTogether"}},
	{"P1", "holders of permits are killed", nil, []string{"family.TestTheNextHoldsWhenTheLeaseOfAKilledProcessEnds"}},
	{"P2", "a large request is at the head", nil, []string{"semaphore.TestProcessesTakeTurnsAndNeverHoldMoreThanTheLimit", "family.TestAReleaseLetsAllInThatFitByOneScriptAndOneMessageAClient"}},
	{"P3", "replies to counts are lost", nil, []string{"countdown.TestLostRepliesCountOnceEach", "countdown.TestAServerThatForgetsLetsNobodyPass"}},
	{"P4", "a party is killed", nil, []string{"family.TestConformance"}},
	{"P5", "a reader is killed", nil, []string{"rwlock.TestAReaderThatIsCutOffLosesItsHoldAlone"}},
	{"P6", "a reader reads again while a writer waits", nil, []string{"rwlock.TestAReaderReadsAgainThoughAWriterWaits", "family.TestConformance"}},
	{"R1", "a minority of the nodes is down or slow", nil, []string{"redlock.TestR1AMinorityInTroubleCostsNobodyMoreThanOneAndAHalfTimeouts"}},
	{"R2", "a majority of the nodes is down", nil, []string{"redlock.TestR2AMajorityThatIsSilentIsAnErrorWithinFourTimeouts"}},
	{"R3", "a node restarts empty while its vote counts", nil, []string{"redlock.TestR3ANodeThatCameUpWithoutItsDataHasNoVoteBeforeALeaseIsOver"}},
	{"R4", "the clock of a node is off by a lease", nil, []string{"redlock.TestR4OneClockThatIsOffByALeaseLetsNobodyIn"}},
	{"R5", "contenders split the votes", nil, []string{"redlock.TestR5ThreeContendersOnFiveNodesGoOn", "redlock.TestR5AVoteThatIsSplitInThreeComesTogether"}},
	{"R6", "tokens come from quorums that differ", nil, []string{"redlock.TestR6TokensRiseOverQuorumsWhoseClocksAreApart"}},

	{"failovers/S18", "slots move under load", by(slotsMoveUnderLoad), nil},
	{"deployments/S18", "a hold outlasts the move of its slot", by(aHoldOutlastsTheMoveOfItsSlot).short(), nil},
	{"deployments/S18", "who may not follow a slot is no flood", by(whoMayNotFollowASlotIsNoFlood), nil},
	{"deployments/S19", "waiters hear where their slot has gone", by(waitersHearWhereTheirSlotHasGone).short(), nil},
	{"deployments/", "conformance", by(conformsEverywhere).short(), nil},
	{"deployments/", "conformance without RESP3, which is found out", by(conformsWithoutRESP3), nil},
	{"deployments/", "conformance with the rights of the page", by(conformsWithTheRightsOfThePage), nil},
	{"deployments/", "each right of a cluster is needed", by(eachRightOfAClusterIsNeeded).short(), nil},
	{"deployments/", "the rights of the options", by(theRightsOfTheOptions).short(), nil},
	{"deployments/", "only who can be counted is counted", by(onlyWhoCanBeCountedIsCounted), nil},
	{"deployments/", "a thousand locks of a cluster need three connections a node", by(aThousandLocksNeedThreeConnectionsANode), nil},
	{"deployments/", "each node of a cluster is told of", by(eachNodeIsToldOf), nil},
	{"deployments/", "a list of a cluster", by(aListOfACluster), nil},
	{"deployments/", "a deadlock in a cluster", by(aDeadlockInACluster), nil},
	{"deployments/", "force is told at once", by(forceIsToldAtOnce), nil},
	{"deployments/", "force is heard behind a failover", by(forceIsHeardBehindAFailover), nil},
	{"deployments/", "a hold is known to the replicas before Lock returns", by(aHoldIsKnownToTheReplicas).short(), nil},
	{"deployments/", "a hold by message is known to the replicas too", by(aHoldByMessageIsKnownToTheReplicas), nil},
	{"deployments/", "a hold that replicas do not know of is given back", by(aHoldThatReplicasDoNotKnowOfIsGivenBack), nil},
	{"deployments/", "a hold ends where replicas do not know of its renewals", by(aHoldEndsWhereReplicasDoNotKnowOfItsRenewals), nil},
	{"deployments/", "calls wait for replicas together", by(callsWaitForReplicasTogether), nil},
	{"deployments/", "a hold is on disk before Lock returns", by(aHoldIsOnDisk), nil},
	{"deployments/", "a server that comes up empty does not grant within a lease", by(aServerThatComesUpEmptyDoesNotGrant), nil},
	{"deployments/", "the order outlasts the wait behind a restart", by(theOrderOutlastsTheWaitBehindARestart), nil},
	{"deployments/", "the order outlasts an empty restart", by(theOrderOutlastsAnEmptyRestart), nil},
	{"deployments/", "a call that gives up behind a restart leaves nothing", by(aCallThatGivesUpBehindARestartLeavesNothing), nil},
	{"deployments/", "a server that comes up with its data grants", by(aServerThatComesUpWithItsDataGrants).short(), nil},
	{"deployments/", "a server is asked for its age once a connection", by(aServerIsAskedForItsAgeOnceAConnection), nil},
	{"upgrade/", "clients of two commits share every kind of lock", under(twoCommitsShareLocks, lossy, func(o *options) {
		o.processes, o.plan.Kinds = 4, slices.Concat(kinds, moreKinds)
	}), nil},
	{"upgrade/", "clients of two commits meet at latches and barriers", by(twoCommitsMeet), nil},
	{"soak/", "nobody is overtaken and nothing grows", by(nobodyIsOvertakenAndNothingGrows), nil},
}, failovers.cases(), warped)

// testsIn returns the names of the test functions of a folder.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files := kit.Got(filepath.Glob(filepath.Join(folder, "*_test.go")))(t)
	require.NotEmpty(t, files, folder)
	found := map[string]bool{}
	for _, name := range files {
		body := kit.Got(os.ReadFile(name))(t)
		file := kit.Got(parser.ParseFile(token.NewFileSet(), name, body, parser.SkipObjectResolution))(t)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				found[f.Name.Name] = true
			}
		}
	}
	return found
}

func TestEveryRowIsShown(t *testing.T) {
	t.Parallel()
	folders := map[string]string{"conn": "internal/conn", "timers": "internal/timers", "model": "internal/verify/model", "sim": "internal/verify/sim", "family": "internal/testenv/family", "core": "internal/core", "keeper": "internal/keeper", "event": "internal/event"}
	rows, names, tests := map[string]bool{}, map[string]bool{}, map[string]map[string]bool{}
	for _, f := range table {
		rows[f.row[strings.Index(f.row, "/")+1:]] = true
		require.False(t, names[f.name()], f.name())
		names[f.name()] = true
		require.True(t, f.shown != nil || len(f.elsewhere) > 0, "nothing shows %s", f.name())
		for _, name := range f.elsewhere {
			pkg, function, _ := strings.Cut(name, ".")
			if tests[pkg] == nil {
				tests[pkg] = testsIn(t, filepath.Join("..", "..", "..", cmp.Or(folders[pkg], pkg)))
			}
			require.True(t, tests[pkg][function], "%s names %s, which does not exist", f.name(), name)
		}
	}
	for letter, n := range map[string]int{"C": 16, "S": 25, "N": 10, "I": 8, "P": 6, "R": 6} {
		for i := range n {
			require.True(t, rows[fmt.Sprint(letter, i+1)] || runtime.GOOS != "linux", "%s%d", letter, i+1)
		}
	}
}

// What a page, a mutant or the campaign asks for by TestFaults/… is a case of the table: go test says "ok" also where it runs
// nothing.
func TestCasesThatAreAskedForAreThere(t *testing.T) {
	t.Parallel()
	files := []string{"../campaign/deployments.go", "../campaign/history.go", "../track-record.tsv"}
	for _, pattern := range []string{"../../../docs/*.md", "../mutants/list/*.txt"} {
		found := kit.Got(filepath.Glob(pattern))(t)
		files = append(files, found...)
	}
	asked := regexp.MustCompile("TestFaults/([^ '\"`|$)\\\\\\n]+)")
	cases := 0
	for _, file := range files {
		text := kit.Got(os.ReadFile(file))(t)
		for _, m := range asked.FindAllStringSubmatch(string(text), -1) {
			cases++
			require.True(t, slices.ContainsFunc(table, func(f fault) bool {
				parts, names := strings.Split(m[1], "/"), strings.Split(strings.ReplaceAll(f.name(), " ", "_"), "/")
				return f.shown != nil && !slices.ContainsFunc(parts[:min(len(parts), len(names))], func(p string) bool {
					return !regexp.MustCompile(p).MatchString(names[slices.Index(parts, p)])
				})
			}), "%s asks for %s", file, m[0])
		}
	}
	require.Greater(t, cases, 20)
}
