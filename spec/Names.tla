-------------------------------- MODULE Names --------------------------------
(* A call for several names (waitqueue/doc.go, "Several names"): it has a ticket for each, and holds all of them *)
(* or gives them back.  What Headwaiter.tla says of one name is taken for granted here: a script serves the queue *)
(* before it ends (R3), and a ticket that is skipped comes back with its arrival (I3).  Subscriptions, leases and *)
(* lost messages are there, and not here.                                                                        *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  OneScript,     \* the tickets of a call come into all the queues in one script
  Bound,         \* what is granted while others are waited for is given back after a bound
  KeepsArrival,  \* and asked for again with its arrival, when one of the others is there
  Names, Calls,  \* 1, 2, ...; a call wants all names but the one with its number, if there is one
  Skips          \* budget: tickets that are skipped

VARIABLES w, told

Wants(c) == Names \ {c}
Min(S) == CHOOSE i \in S : \A j \in S : i <= j
Note(x, text) == [x EXCEPT !.log = Append(@, text)]

\* Of each call and name: "" not asked for, "waits", "skipped", "holds", "given" back.  ask: when the call first asked.
\* at: by what it stands in the queue.
Start == [st |-> [c \in Calls |-> [n \in Names |-> ""]], at |-> [c \in Calls |-> [n \in Names |-> 0]], ask |-> [c \in Calls |-> 0],
          done |-> {}, high |-> 0, skips |-> Skips, log |-> <<>>]

Owners(x, n) == {c \in Calls : x.st[c][n] = "holds"}
Queue(x, n) == {c \in Calls : x.st[c][n] = "waits"}
Head1(x, n) == CHOOSE c \in Queue(x, n) : \A d \in Queue(x, n) : x.at[c][n] < x.at[d][n] \/ (x.at[c][n] = x.at[d][n] /\ c <= d)
Has(x, c) == {n \in Wants(c) : x.st[c][n] = "holds"}
All(x, c) == Has(x, c) = Wants(c)

\* A script serves the queues of its names.  Who is granted one name asks again for what it gave back.
RECURSIVE Serve(_)
Serve(x) ==
  LET free == {n \in Names : Owners(x, n) = {} /\ Queue(x, n) # {}} IN
  IF free = {} THEN x ELSE
  LET n == Min(free)
      c == Head1(x, n)
      back == {m \in Wants(c) : x.st[c][m] = "given"}
  IN Serve(Note([x EXCEPT !.st[c] = [m \in Names |-> IF m = n THEN "holds" ELSE IF m \in back THEN "waits" ELSE x.st[c][m]],
                          !.at[c] = [m \in Names |-> IF m \notin back THEN x.at[c][m] ELSE IF KeepsArrival THEN x.ask[c] ELSE x.high + 1],
                          !.high = IF back # {} /\ ~KeepsArrival THEN @ + 1 ELSE @], <<"granted", c, n>>))

If(may, x, text) == IF may THEN {Note(x, text)} ELSE {}
Enter(x, c, S) == [x EXCEPT !.st[c] = [n \in Names |-> IF n \in S THEN "waits" ELSE x.st[c][n]], !.high = @ + 1,
                            !.at[c] = [n \in Names |-> IF n \in S THEN x.high + 1 ELSE x.at[c][n]],
                            !.ask[c] = IF @ = 0 THEN x.high + 1 ELSE @]
Asks(c) ==
  LET new == {n \in Wants(c) : w.st[c][n] = ""}
      may == c \notin w.done /\ new # {}
  IN IF OneScript THEN If(may, Enter(w, c, new), <<"asks", c, new>>)
     ELSE UNION {If(may, Enter(w, c, {n}), <<"asks", c, {n}>>) : n \in new}
GivesBack(c) ==
  If(Bound /\ c \notin w.done /\ ~All(w, c) /\ Has(w, c) # {} /\ \A n \in Wants(c) : w.st[c][n] # "",
     [w EXCEPT !.st[c] = [n \in Names |-> IF w.st[c][n] = "holds" THEN "given" ELSE w.st[c][n]]], <<"gives back", c, Has(w, c)>>)
Releases(c) == If(All(w, c) /\ c \notin w.done, [w EXCEPT !.st[c] = [n \in Names |-> ""], !.done = @ \cup {c}], <<"releases", c>>)
Skipped(c, n) == If(w.skips > 0 /\ w.st[c][n] = "waits", [w EXCEPT !.st[c][n] = "skipped", !.skips = @ - 1], <<"skipped", c, n>>)
Rejoins(c, n) == If(w.st[c][n] = "skipped", [w EXCEPT !.st[c][n] = "waits"], <<"rejoins", c, n>>)

Steps == {[w |-> [x EXCEPT !.log = <<>>], told |-> x.log] : x \in {Serve(y) : y \in
  UNION ({Asks(c) \cup GivesBack(c) \cup Releases(c) : c \in Calls} \cup {Skipped(c, n) \cup Rejoins(c, n) : c \in Calls, n \in Names})}}

Init == w = Start /\ told = <<>>
Next == \/ \E s \in Steps : w' = s.w /\ told' = s.told
        \/ w.done = Calls /\ UNCHANGED <<w, told>>
Spec == Init /\ [][Next]_<<w, told>> /\ WF_<<w, told>>(Next)
View == w

(* ---- What must hold.  That nobody is stranded is that there is no deadlock. ---- *)

\* I1, for each name.
NoTwoOwners == \A n \in Names : Cardinality(Owners(w, n)) <= 1
\* Two calls stand in the same order in all the queues that they have in common: that of their first asks.
SameOrder == \A c, d \in Calls : \A n \in Wants(c) \cap Wants(d) :
               w.st[c][n] = "waits" /\ w.st[d][n] = "waits" /\ w.ask[c] < w.ask[d] => w.at[c][n] < w.at[d][n]
\* Everybody gets all of its names.
EverybodyGetsIn == <>(w.done = Calls)
=============================================================================
