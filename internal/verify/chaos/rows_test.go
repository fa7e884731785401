package chaos

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A row of the catalogue of faults: what happens, and the tests of other packages that show parts of it more
// closely than its case here, which is TestC1… for C1.
type row struct {
	id, fault string
	elsewhere []string
}

var rows = []row{
	{"C1", "a holder is killed", []string{"fairlock.TestTheNextHoldsWhenTheLeaseOfADeadHolderEnds", "fairlock.TestTheLeaseOfADeadHolderIsNotCutByWhoeverAsks"}},
	{"C2", "a holder is paused past its lease", []string{"fairlock.TestAHolderThatWasStoppedPastItsLeaseSeesTheLossAtItsFirstLook"}},
	{"C3", "renewals are starved", []string{"fairlock.TestAHoldIsRenewedForAsLongAsItLasts"}},
	{"C4", "work ends without a release", []string{"fairlock.TestDoReleasesAndJoinsWhatWentWrong"}},
	{"C5", "waiters in front are dead", []string{"fairlock.TestAThousandDeadClientsInFrontAreSkippedAtOnce", "model.TestADeadProcessWithThousandsOfTicketsCostsNoGrantLease"}},
	{"C6", "a waiter is paused", []string{"fairlock.TestAStoppedProcessInFrontCostsOneGrantLeaseAndTakesItsTurnsLater"}},
	{"C7", "a wait is cancelled at the moment of its grant", []string{"fairlock.TestACancellationAtTheMomentOfTheGrantLosesNothing"}},
	{"C8", "waits of no, little and endless time", []string{"fairlock.TestACancelledCallReturnsAtOnceWhileRedisIsUnreachable"}},
	{"C9", "the clock of a client jumps", []string{"conn.TestTheBoundsOfTheServersClockHold"}},
	{"C10", "the machine of a client is suspended", []string{"lease.TestTheTimeThatTheMachineSleptCounts", "timers.TestAfterASuspensionEverythingIsLookedAt", "redlock.TestWhatWasSleptBeforeAVoteDoesNotShortenTheHold"}},
	{"C11", "two processes are copies of each other", nil},
	{"C12", "a hold that was lost is entered again", []string{"reentrant.TestWhatComesFromALeaseContextEntersAndNothingElseDoes"}},
	{"C13", "a release comes twice, or after the loss", []string{"fairlock.TestALostHoldSaysWhyAndItsReleaseFreesNobody", "lease.TestAReleaseAfterALossIsNeverNil"}},
	{"C14", "a client is closed", []string{"fairlock.TestCloseLeavesNothingOfACallAtAnyMoment"}},
	{"C15", "a process dies as a hold goes to another", []string{"fairlock.TestALostReplyMovesAHoldOnce", "fairlock.TestAHoldThatNobodyAdoptsIsFreeAfterOneGrantLease", "sim.TestEachKindAlone"}},
	{"C16", "a client dies or is stopped that keeps what no call uses", []string{"fairlock.TestAKeeperThatDiesCostsAGrantLease"}},

	{"S1", "the server restarts empty", []string{"fairlock.TestAServerThatRestartsEmptyHoldsUpNobody", "fairlock.TestTokensRiseOverAnEmptyRestart"}},
	{"S2", "it is away for a lease and keeps its data", []string{"fairlock.TestAServerThatIsAwayForALeaseHoldsUpNobody"}},
	{"S3", "it restarts from an older state", []string{"fairlock.TestTokensRiseOverTheReturnOfAnEarlierState"}},
	{"S4", "scripts are flushed", []string{"fairlock.TestFlushedScriptsAreNotNoticed"}},
	{"S5", "keys are deleted", []string{"fairlock.TestAnyKeyMayBeDeletedWhileClientsWait", "countdown.TestAServerThatForgetsLetsNobodyPass"}},
	{"S6", "subscribers are killed", []string{"fairlock.TestTheQueueMovesOnWhileSubscribersAreKilled"}},
	{"S7", "connections are killed", []string{"fairlock.TestNobodyIsLostWhileConnectionsAreKilled"}},
	{"S8", "a subscriber does not read", nil},
	{"S9", "the server stalls beyond a lease", []string{"fairlock.TestAHolderGivesUpByItsOwnClockWhileTheServerSleeps"}},
	{"S10", "it is busy with a script", nil},
	{"S11", "its memory is full", []string{"fairlock.TestAFullMemoryRefusesNewCallsAndServesTheOldOnes", "model.TestFullMemoryStopsOnlyWhoWouldAdd"}},
	{"S12", "locks are evicted", nil},
	{"S13", "it cannot save", nil},
	{"S14", "it loads, or has lost its master", nil},
	{"S15", "it is demoted", nil},
	{"S16", "it has too few replicas", nil},
	{"S17", "a replica is promoted that does not know the lock", nil},
	{"S20", "its clock jumps", []string{"fairlock.TestTokensRiseWhereTheClockOfTheServerSteppedBack"}},
	{"S21", "it refuses connections", nil},
	{"S22", "rights are missing, or taken away", []string{"fairlock.TestAUserThatLacksARightIsToldWhichAtTheStart", "fairlock.TestAReleaseThatMayNotPublishSaysSoAndTheNextGetsInByItself"}},
	{"S23", "a key has another type", []string{"fairlock.TestSuspectsOfAnotherTypeAreReportedAndLeftAlone", "model.TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite"}},
	{"S24", "it allows little", []string{"fairlock.TestTheRightsThatTheErrorNamesAreEnoughForEverything"}},
	{"S25", "idle connections are cut", nil},

	{"N1", "wake-ups are lost", []string{"fairlock.TestAGrantWhoseMessageIsLostIsFoundByACheckAndCounted", "fairlock.TestAClientThatHearsNothingTakesItsTurnByItsChecks"}},
	{"N2", "messages are doubled, replayed and forged", []string{"fairlock.TestAGrantToACallThatIsOverIsGivenBack", "countdown.TestMessagesOfOtherGenerationsOpenNothing"}},
	{"N3", "a message overtakes the reply", nil},
	{"N4", "replies are cut", []string{"fairlock.TestAnAskWhoseReplyIsLostHasItsGrantOnce", "fairlock.TestAReleaseWhoseReplyIsLostIsOneRelease"}},
	{"N5", "requests run late", []string{"fairlock.TestAnAskThatComesLateLeavesNoHolder", "fairlock.TestRequestsThatAllComeTooLateForTheirCallersLeaveNothing"}},
	{"N6", "a reply comes after the lease has ended", []string{"fairlock.TestAnAskWhoseReplyComesLateLeavesNoHolder"}},
	{"N7", "nothing moves either way", []string{"fairlock.TestCloseReturnsWhenItsContextEndsWhileRedisIsUnreachable"}},
	{"N8", "one direction loses everything", nil},
	{"N9", "the network is slow", nil},
	{"N10", "the server is cut from one client", nil},

	{"I5", "times have 16 digits", []string{"terms.TestTheLargestTimesAreExactInLua"}},
	{"I6", "100,000 wait", []string{"model.TestALiveTicketIsReachedBehindThousandsOfSilentOnes"}},
	{"I7", "many clients wait for one lock", []string{"fairlock.TestOnlyTheHeadIsWoken"}},
	{"I8", "a client uses many names", []string{"waitqueue.TestAHotLockKeepsItsSubscriptionAndALockOutOfUseDropsIt"}},

	{"P1", "holders of permits are killed", nil},
	{"P3", "replies to counts are lost", []string{"countdown.TestAHundredLostRepliesCountOnceEach"}},
	{"P4", "a party is killed", nil},
	{"P5", "a reader is killed", nil},
}

// others are the rows whose cases are in other packages, beside what they are about: what is asked for that is unusual
// while nothing is in trouble, Redlock, and clusters.
var others = []row{
	{"I1", "names are unusual", []string{"fairlock.TestUnusualNamesWork", "fairlock.TestUnusableNamesAreRefusedBeforeRedis", "family.TestObjectsOfOneNameDoNotMeet"}},
	{"I2", "objects have one name", []string{"family.TestObjectsOfOneNameDoNotMeet"}},
	{"I3", "times are unusable", []string{"fairlock.TestUnusableTimesAreRefusedBeforeRedis", "fairlock.TestExtremeTimesWork", "terms.TestTheFirstLeaseIsNoLongerThanTheMaximumHold"}},
	{"I4", "counts are at their limits", []string{"countdown.TestTheLargestCountIsExact", "semaphore.TestAsManyPermitsAsCanBeCountedAreCountedExactly", "semaphore.TestNumbersThatNameNoPermitsAreRefusedBeforeRedis", "reentrant.TestMoreEntriesThanTheLimitAreRefused"}},
	{"P2", "a large request is at the head", []string{"semaphore.TestProcessesTakeTurnsAndNeverHoldMoreThanTheLimit", "semaphore.TestAReleaseWakesAllHeadsThatFitInOneScript"}},
	{"P6", "a reader reads again while a writer waits", []string{"rwlock.TestAReaderReadsAgainThoughAWriterWaits", "rwlock.TestProcessesShareReadsAndExcludeWrites"}},
	{"R1", "a minority of the nodes is down or slow", []string{"redlock.TestR1AMinorityInTroubleHoldsUpNobody"}},
	{"R2", "a majority of the nodes is down", []string{"redlock.TestR2AMajorityInTroubleIsAClearErrorAndLeavesNothing"}},
	{"R3", "a node restarts empty while its vote counts", []string{"redlock.TestR3ANodeThatCameUpWithoutItsDataHasNoVoteBeforeALeaseIsOver"}},
	{"R4", "the clock of a node is off by a lease", []string{"redlock.TestR4OneClockThatIsOffByALeaseLetsNobodyIn"}},
	{"R5", "contenders split the votes", []string{"redlock.TestR5ThreeContendersOnFiveNodesGoOn", "redlock.TestR5AVoteThatIsSplitInThreeComesTogether"}},
	{"R6", "tokens come from quorums that differ", []string{"redlock.TestR6TokensRiseOverQuorumsWhoseClocksAreApart"}},
	{"S18", "slots move", []string{"deploy.TestSlotsMoveUnderLoad", "deploy.TestAHoldOutlastsTheMoveOfItsSlot"}},
	{"S19", "a slot moves of which somebody hears", []string{"deploy.TestWaitersHearWhereTheirSlotHasGone"}},
}

// testsIn returns the names of the test functions of a folder.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, folder)
	found := map[string]bool{}
	for _, name := range files {
		body, err := os.ReadFile(name)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, body, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				found[f.Name.Name] = true
			}
		}
	}
	return found
}

func TestEveryRowHasACase(t *testing.T) {
	t.Parallel()
	here := testsIn(t, ".")
	seen := map[string]bool{}
	for _, x := range rows {
		require.False(t, seen[x.id], x.id)
		seen[x.id] = true
		cases := 0
		for name := range here {
			if strings.HasPrefix(name, "Test"+x.id) && !strings.ContainsAny(name[len("Test"+x.id):][:1], "0123456789") {
				cases++
			}
		}
		require.NotZero(t, cases, "%s: %s", x.id, x.fault)
	}
	elsewhere := map[string]bool{}
	for _, x := range others {
		require.False(t, seen[x.id] || elsewhere[x.id], x.id)
		elsewhere[x.id] = true
		require.NotEmpty(t, x.elsewhere, "%s: %s", x.id, x.fault)
	}
	for letter, n := range map[string]int{"C": 16, "S": 25, "N": 10, "I": 8, "P": 6, "R": 6} {
		for i := range n {
			id := fmt.Sprint(letter, i+1)
			require.True(t, seen[id] || elsewhere[id], id)
		}
	}
	row := regexp.MustCompile(`^Test([CSNIPR]\d+)`)
	for name := range here {
		if m := row.FindStringSubmatch(name); m != nil {
			require.True(t, seen[m[1]], "%s is about no row of the table", name)
		}
	}
}

func TestTheTestsThatTheTableNamesExist(t *testing.T) {
	t.Parallel()
	folders := map[string]string{"conn": "internal/conn", "terms": "internal/terms", "timers": "internal/timers", "model": "internal/verify/model", "sim": "internal/verify/sim", "family": "internal/testenv/family", "deploy": "internal/verify/deploy"}
	tests := map[string]map[string]bool{}
	for _, x := range slices.Concat(rows, others) {
		for _, name := range x.elsewhere {
			pkg, function, _ := strings.Cut(name, ".")
			if tests[pkg] == nil {
				folder := pkg
				if in, ok := folders[pkg]; ok {
					folder = in
				}
				tests[pkg] = testsIn(t, filepath.Join("..", "..", "..", folder))
			}
			require.True(t, tests[pkg][function], "%s names %s, which does not exist", x.id, name)
		}
	}
}
