package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// identitiesTime is how long identities are looked for, among all keys of the server.
	identitiesTime = 2 * time.Second
	// takenSoon is the lease of locks that have no other.
	takenSoon = 10 * time.Second
	// takenLately is for how long what two processes did counts: then who started them may still try again.
	takenLately = time.Hour
	// toldIdentities are told at the most, the last first.
	toldIdentities = 20
)

// An IdentityReport is an identity that two clients have taken within 10 s, or that two had at the same time.
type IdentityReport struct {
	Identity  string              `json:"identity"`
	Who       string              `json:"who"` // that has it: name@host#pid
	Taken     Fact[time.Duration] `json:"taken_seconds_ago"`
	Apart     Fact[time.Duration] `json:"apart_seconds"` // from when the one before had taken it, unless a witness told its death
	BeforeWho string              `json:"before_who"`
	Twice     Fact[time.Duration] `json:"twice_seconds_ago"` // when another client asked after it had lost the identity
	TwiceWho  string              `json:"twice_who"`
}

// askIdentities looks for identities of which the promise is broken, or may be.
func askIdentities(ctx context.Context, w waitqueue.Wiring, r *Report) {
	if w.Bare {
		return
	}
	look, cancel := context.WithTimeout(ctx, identitiesTime)
	defer cancel()
	all, err := w.Identities(look)
	if err != nil && ctx.Err() == nil {
		if look.Err() != nil {
			err = fmt.Errorf("not all keys were seen within %v", identitiesTime)
		}
		r.Notes = append(r.Notes, "identities: "+brief(err))
	}
	now := time.Now()
	since := func(t, until time.Time) Fact[time.Duration] {
		return Fact[time.Duration]{max(until.Sub(t), 0), !t.IsZero()}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		id := all[name]
		told := IdentityReport{
			Identity: name, Who: id.Who, Taken: since(id.Taken, now), Apart: since(id.Before, id.Taken), BeforeWho: id.BeforeWho,
			Twice: since(id.Twice, now), TwiceWho: id.TwiceWho,
		}
		if told.Twice.Known || told.Apart.Known && told.Apart.Value < takenSoon {
			r.Identities = append(r.Identities, told)
		}
	}
	slices.SortStableFunc(r.Identities, func(a, b IdentityReport) int { return cmp.Compare(a.Taken.Value, b.Taken.Value) })
	if more := len(r.Identities) - toldIdentities; more > 0 {
		r.Identities = r.Identities[:toldIdentities]
		r.Notes = append(r.Notes, fmt.Sprintf("identities: %d more like these", more))
	}
}

// identities judges whether processes keep the promise that one at a time has an identity.
func (j *judgement) identities() {
	const remedy = "a name that the platform gives to one process at a time: docs/when-a-holder-dies.md lists them"
	for _, i := range j.report.Identities {
		setting, who := "identity "+word(i.Identity), word(i.Who)
		switch {
		case i.Twice.Known:
			severity := Caution
			if i.Twice.Value < takenLately {
				severity = Danger
			}
			j.add(severity, nil, setting, who+" and "+word(i.TwiceWho),
				"Both lived at the same time. The later one has ended what the other one held; until that lease was over, both may have held.", remedy)
		case i.Taken.Value < takenLately:
			j.add(Caution, nil, setting, fmt.Sprintf("taken by %s, %v after %s", who, i.Apart.Value.Round(time.Millisecond), word(i.BeforeWho)),
				"Either a process ends again and again soon after its start, or two have the identity and take it from each other.", remedy)
		}
	}
}

// word is a text of others as one word, whose parts do not begin a line.
func word(text string) string {
	text = fmt.Sprintf("%.80q", text)
	return strings.ReplaceAll(text[1:len(text)-1], " ", `\x20`)
}
