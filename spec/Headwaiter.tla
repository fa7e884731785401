----------------------------- MODULE Headwaiter -----------------------------
(* The protocol of waitqueue/doc.go for one name: the server, the clients, and the messages between them.  The   *)
(* words are those of its glossary; R1 to R11, I1 to I9, I11 and I12 are its rules and invariants.  Each can be   *)
(* switched off: the constant Off names it.                                                                      *)
(* A step is one thing that somebody does, or that happens, with all that follows from it at once: messages      *)
(* arrive, scripts run, clients answer.  One message of each step can be held up, lost, or caught by a cut       *)
(* connection, as long as there is a budget for it.  Time is not counted.  A lease may end whenever no running   *)
(* client believes that it has it (I4), and an old request is too late at any time (R7).                         *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Off,                          \* the rules that are switched off, and the slips that are made (below)
  Clients, Tickets,             \* 1, 2, ...; ticket 21 is the first call of client 2
  Permits, Heavy,               \* how many there are; the clients whose calls ask for all of them, and not for one
  Readers,                      \* whether those who ask for one are readers, who share a token
  Double, Cohorts,              \* the clients that make two calls at a time, and which of them pass a hold on once
  Givers,                       \* the clients that hand their holds over, for others to adopt
  Curious,                      \* the clients whose holders want to be told when somebody waits
  Replica,                      \* the clients that subscribe at a replica: they hear, and are not counted
  Limit,                        \* how many may wait, 0 for any number
  Late, Faults, Cancels, Drops  \* budgets: messages held up, faults, calls that give up, subscriptions that end

VARIABLES w, told     \* the world, and what was done in the last step (for the reader of a trace)

R1 == "R1" \notin Off
R2 == "R2" \notin Off
R3 == "R3" \notin Off
R4 == "R4" \notin Off
R5 == "R5" \notin Off
R6 == "R6" \notin Off
R7 == "R7" \notin Off
R8 == "R8" \notin Off
R9 == "R9" \notin Off
R10 == "R10" \notin Off
R11 == "R11" \notin Off
\* Parts of rules.
R1Order == R1 /\ "R1Order" \notin Off          \* requests on a connection take effect in their order
R1Repeat == R1 /\ "R1Repeat" \notin Off        \* an end is repeated after what may still run
R3Ask == R3 /\ "R3Ask" \notin Off              \* an ask serves the queue before it decides
R3Check == R3 /\ "R3Check" \notin Off          \* a check does
R3Leave == R3 /\ "R3Leave" \notin Off          \* a waiter that leaves does
R8Held == R8 /\ "R8Held" \notin Off            \* a notice for a ticket that holds is dropped
R8Ending == R8 /\ "R8Ending" \notin Off        \* one for a ticket that is ending is
R10Suspects == R10 /\ "R10Suspects" \notin Off  \* the server passes suspects over
R10Doubt == R10 /\ "R10Doubt" \notin Off        \* a client that missed a message, or is a suspect, makes a new connection
R11Ends == R11 /\ "R11Ends" \notin Off        \* who gives a hold has ended before anything is sent
R11Once == R11 /\ "R11Once" \notin Off        \* what is adopted is in transit no more
R11End == R11 /\ "R11End" \notin Off          \* a hand-over that came too late is followed by an end
\* Mistakes that the code made within the rules.
EndWhenAnswered == "EndWhenAnswered" \in Off    \* whether an end must be repeated is decided when its answer comes
LapseForgets == "LapseForgets" \in Off          \* what may still run under the number of a ticket before it lapsed is not ended
LateArrivalStays == "LateArrivalStays" \in Off  \* a queued ticket keeps an arrival that is later than its own
StaleProof == "StaleProof" \in Off              \* an echo clears a mark that is newer than it (the code still does)
MateAsksLater == "MateAsksLater" \in Off        \* the next leader of a cohort asks after the end of the last
MateIsForgotten == "MateIsForgotten" \in Off    \* nobody leads after the end of the last
RefusedAgain == "RefusedAgain" \in Off          \* a ticket that comes back to the queue is counted as a new one
DeadWait == "DeadWait" \in Off                  \* the dead count as waiters
WishStays == "WishStays" \in Off                \* the script that sends the word leaves the wish at the hold, so no renewal looks again

ClientOf(t) == t \div 10
Weight(t) == IF ClientOf(t) \in Heavy THEN Permits ELSE 1
Slots(c) == IF c \in Double THEN 2 ELSE 1
Passes(c) == IF c \in Cohorts THEN 1 ELSE 0
None == <<0, 0>>
Min(S) == CHOOSE i \in S : \A j \in S : i <= j
Max(i, j) == IF i > j THEN i ELSE j
Who(id) == ClientOf(id[1])
Note(x, text) == [x EXCEPT !.d.log = Append(@, text)]
Bad(x, kind) == [x EXCEPT !.j.bad = IF @ = "" THEN kind ELSE @]

(* A message: its kind, the tickets that it names, how it is meant or what it says, arrival, token, grants.      *)
M(k, ids, how) == [k |-> k, ids |-> ids, how |-> how, arr |-> 0, tok |-> 0, g |-> {}, says |-> {}, lim |-> {}, sus |-> FALSE, late |-> FALSE]
Grant(id, tok) == [id |-> id, tok |-> tok, old |-> FALSE]
NoTicket(st, n) == [st |-> st, n |-> n, arr |-> 0, tok |-> 0, ok |-> FALSE, e |-> "", again |-> FALSE, told |-> FALSE, unsure |-> FALSE,
                      in |-> FALSE, gives |-> FALSE, from |-> 0, knows |-> FALSE]

NewClient == [life |-> "alive", sub |-> "", want |-> FALSE, deaf |-> FALSE, proven |-> FALSE, half |-> FALSE, echo |-> "", check |-> FALSE,
              missing |-> None, passed |-> 0]
NoNet == [q |-> <<>>, r |-> <<>>, l |-> <<>>, p |-> <<>>]
NoDoing == [plan |-> [n |-> 0, do |-> ""], sends |-> <<>>, reply |-> M("", {}, ""), log |-> <<>>]

Start == [
  \* The server: who holds, the queue, the last token, that of the readers, the last arrival, the mark of R6, suspects,
  \* who subscribes, and whose connection is counted though nobody reads it any more.
  s |-> [hold |-> {}, queue |-> <<>>, tok |-> 0, group |-> 0, high |-> 0, mark |-> "", suspect |-> [c \in Clients |-> ""],
         subs |-> {}, zombies |-> {}],
  \* The clients, their tickets, and numbers that a ticket had before, under which something may still run.
  c |-> [c \in Clients |-> NewClient], t |-> [t \in Tickets |-> NoTicket("new", 0)], past |-> {},
  \* What is under way on the connections of a client: requests, replies, what concerns its subscription, what is pushed.
  \* old: requests on a connection that was given up.  stale: those that are too late, without R7.
  net |-> [c \in Clients |-> NoNet], old |-> {}, stale |-> {},
  b |-> [late |-> Late, faults |-> Faults, cancels |-> Cancels, drops |-> Drops],
  \* The holds that were handed over, as the texts name them: whoever hears of one may adopt it, at any time.
  texts |-> {},
  \* For the judge: tickets that must be served in turn, clients whose subscription came to harm, clients that let a grant
  \* lapse and have been silent since, the highest tokens that were believed, of all and of those who share with nobody.
  j |-> [placed |-> {}, hurt |-> Replica, eaten |-> {}, seen |-> 0, alone |-> 0, bad |-> ""],
  \* What is being done: which message of the step something happens to, those sent so far, the reply of a script, what is told.
  d |-> NoDoing]

\* In transit a hold has a number that its ticket never has.
Transit(id) == <<id[1], id[2] + 50>>
TextOf(id) == id[1] * 100 + id[2] + 50
OfText(n) == <<n \div 100, n % 100>>

Known(x, id) == x.t[id[1]].n = id[2] /\ x.t[id[1]].st \notin {"new", "ended"}
Id(x, t) == <<t, x.t[t].n>>
Of(x, c) == {t \in Tickets : ClientOf(t) = c}
Waits(x, t) == x.t[t].st \in {"waiting", "subscribing"} /\ x.t[t].arr # 0
AnyWaits(x, c) == \E t \in Of(x, c) : Waits(x, t)
Hears(x, c) == ~x.c[c].deaf /\ (x.c[c].sub = "on" \/ (~R2 /\ x.c[c].sub = "leaving"))
Cohort(c) == c \in Cohorts
Asks(L) == {L[i] : i \in {j \in DOMAIN L : L[j].k \in {"ask", "check"}}}
InFlight(x, id) == \E m \in Asks(x.net[Who(id)].q) \cup Asks(x.net[Who(id)].r) : id \in m.ids
MayRun(x, id) == InFlight(x, id) \/ \E m \in x.old : id \in m.ids
Checking(x, c) == \E m \in Asks(x.net[c].q) \cup Asks(x.net[c].r) : m.k = "check"
Excuse(x, ids) == [x EXCEPT !.j.placed = @ \ {t \in Tickets : Id(x, t) \in ids}]

(* ---- Messages ---- *)

Put(x, c, l, m) == [x EXCEPT !.net[c][l] = Append(@, m)]

\* R1: what may still run of a number that its ticket has no more is ended after that.
Outlive(x, ids) == IF R1Repeat /\ ~LapseForgets THEN [x EXCEPT !.past = @ \cup ids] ELSE x

\* A client gives up its connection for commands.  Its requests are lost, or may still run; its replies are lost.
Cut(x, c, run) ==
  LET q == x.net[c].q
      asks == Asks(q)
      hit == UNION {m.ids : m \in asks \cup Asks(x.net[c].r)}
      y == [x EXCEPT !.net[c].q = SelectSeq(q, LAMBDA m : m.how = "back"), !.net[c].r = <<>>,
              !.old = @ \cup (IF run THEN {[m EXCEPT !.late = FALSE] : m \in asks} ELSE {}),
              !.j.placed = @ \ {t \in Of(x, c) : Cohort(c) /\ x.t[t].st = "asking" /\ Id(x, t) \in hit},
              !.t = [t \in Tickets |-> IF ClientOf(t) # c THEN @[t] ELSE
                       [@[t] EXCEPT !.unsure = @ \/ Id(x, t) \in hit, !.e = IF @ = "out" THEN "owed" ELSE @]]]
  IN Outlive(Note(y, <<"cut", c, run>>), {id \in hit : ~Known(x, id)})

\* What can happen to a message.
May(x, send) ==
  LET l == send[1]
      k == send[2]
  IN (IF x.b.late > 0 THEN {"hold"} ELSE {}) \cup
     (IF x.b.faults = 0 THEN {}
      ELSE (IF l = "p" /\ k \in {"grant", "suspect", "echo", "wanted"} THEN {"lose"} ELSE {}) \cup (IF l \in {"q", "r"} THEN {"cut"} ELSE {})
           \cup (IF l = "q" /\ k \in {"ask", "check"} THEN {"give up"} ELSE {}))

\* Sends a message, to which that happens which the plan of the step says.
Send(x, c, l, m) ==
  IF x.d.plan.n # Len(x.d.sends) + 1 THEN [x EXCEPT !.d.sends = Append(@, <<l, m.k>>), !.net[c][l] = Append(@, m)] ELSE
  LET y == [x EXCEPT !.d.sends = Append(@, <<l, m.k>>)] IN
  CASE x.d.plan.do = "hold" -> Note(Put([y EXCEPT !.b.late = @ - 1], c, l, [m EXCEPT !.late = TRUE]), <<"held up", m.k, c, l>>)
    [] x.d.plan.do = "lose" -> Note([y EXCEPT !.b.faults = @ - 1, !.j.hurt = @ \cup {c}], <<"lost", m.k, c, l>>)
    [] OTHER -> Cut(Put([y EXCEPT !.b.faults = @ - 1], c, l, m), c, x.d.plan.do = "give up")

Publish(x, c, m) == IF c \in x.s.subs /\ ~x.c[c].half THEN Send(x, c, "p", m) ELSE x

\* The connection that subscribes ends.  The server notices, unless nothing comes through on it.
HangUp(x, c) ==
  [x EXCEPT !.s.zombies = IF x.c[c].half /\ c \in x.s.subs THEN @ \cup {c} ELSE @, !.s.subs = @ \ {c}, !.c[c].half = FALSE,
            !.c[c].sub = "", !.c[c].echo = "", !.net[c].l = <<>>, !.net[c].p = <<>>]

(* ---- The scripts ---- *)

HoldOf(x, id) == {h \in x.s.hold : h.id = id}
\* Renewed; "wants": and its holder has said that it wants to be told when somebody waits.
Full(h) == h.ph \in {"full", "wants"}
RECURSIVE Sum(_)
Sum(S) == IF S = {} THEN 0 ELSE LET h == CHOOSE h \in S : TRUE IN Weight(h.id[1]) + Sum(S \ {h})
Room(x) == Permits - Sum(x.s.hold)
Counted(x, c) == c \in (x.s.subs \ Replica) \cup x.s.zombies
InQueue(x, id) == \E i \in DOMAIN x.s.queue : x.s.queue[i].id = id
Without(x, ids) == [x EXCEPT !.s.queue = SelectSeq(@, LAMBDA e : e.id \notin ids)]
Unmark(x) == IF x.s.queue = <<>> THEN [x EXCEPT !.s.mark = ""] ELSE x

\* I12: the first that queues has those told who want to know, once, of all holds with tokens up to the last.
Word(x) ==
  LET wish == {h \in x.s.hold : h.ph = "wants"} IN
  IF wish = {} THEN x ELSE
  LET h == CHOOSE h \in wish : TRUE
      y == IF WishStays THEN x ELSE [x EXCEPT !.s.hold = (@ \ {h}) \cup {[h EXCEPT !.ph = "full"]}]
  IN Publish(y, Who(h.id), [M("wanted", {h.id}, "") EXCEPT !.tok = x.s.tok])

\* I3: by arrival.  A late ask of its own may have given a ticket a later arrival than its own.
Enqueue(w0, id, arr, stays) ==
  LET x == IF InQueue(w0, id) THEN w0 ELSE Word(w0)
      y == IF stays /\ Known(x, id) THEN [x EXCEPT !.j.placed = @ \cup {id[1]}] ELSE x
      z == IF InQueue(x, id) THEN Without(y, {id}) ELSE y
      n == Cardinality({i \in DOMAIN z.s.queue : z.s.queue[i].arr <= arr})
  IN IF \E i \in DOMAIN x.s.queue : x.s.queue[i].id = id /\ (x.s.queue[i].arr <= arr \/ LateArrivalStays) THEN y
     ELSE [z EXCEPT !.s.queue = SubSeq(@, 1, n) \o <<[id |-> id, arr |-> arr]>> \o SubSeq(@, n + 1, Len(@))]

Mate(x, t) == Cohort(ClientOf(t)) /\ (x.t[t].st = "mating" \/ (x.t[t].st = "asking" /\ x.t[t].arr # 0))

\* I2: each token is higher than all before; but readers who hold together share one.
Own(x, id, ph, arr) ==
  LET reader == Readers /\ Weight(id[1]) < Permits
      tok == IF reader /\ Room(x) # Permits /\ x.s.group = x.s.tok THEN x.s.tok ELSE x.s.tok + 1
      y == [x EXCEPT !.s.tok = tok, !.s.group = IF reader THEN tok ELSE @, !.j.placed = @ \ {id[1]},
                     !.s.hold = @ \cup {[id |-> id, tok |-> tok, ph |-> ph, over |-> FALSE]}]
      first == {t \in x.j.placed \ {id[1]} : x.c[ClientOf(t)].life = "alive" /\ (Waits(x, t) \/ (ClientOf(t) # Who(id) /\ Mate(x, t))) /\ x.t[t].arr < arr
                                            /\ HoldOf(x, Id(x, t)) = {}}
  IN IF first = {} THEN y ELSE Bad(y, "overtaken")

\* To its own client in the reply (R5), else by message.
Serve(x, e, caller) ==
  LET c == Who(e.id) IN
  IF c = caller /\ R5
  THEN LET y == Own(x, e.id, "reply", e.arr) IN Note([y EXCEPT !.d.reply.g = @ \cup {Grant(e.id, y.s.tok)}], <<"in the reply", e.id, y.s.tok>>)
  ELSE LET y == Note(Own(x, e.id, "message", e.arr), <<"by message", e.id, x.s.tok + 1>>)
           z == IF c \in x.j.eaten /\ (x.c[c].life # "alive" \/ x.c[c].half) THEN Bad(y, "second lapse") ELSE y
       IN Publish(z, c, [M("grant", {e.id}, "") EXCEPT !.g = {Grant(e.id, y.s.tok)}])

RECURSIVE ServeAll(_, _, _)
ServeAll(x, heads, caller) == IF heads = <<>> THEN x ELSE ServeAll(Serve(x, Head(heads), caller), Tail(heads), caller)

\* Looks at the heads as long as they are dead, or fit.  p: what was found so far.
RECURSIVE Scan(_, _, _, _)
Scan(x, caller, p, i) ==
  IF i > Len(x.s.queue) THEN [x |-> x, p |-> [p EXCEPT !.rank = i - 1]] ELSE
  LET e == x.s.queue[i]
      c == Who(e.id)
      fits == Weight(e.id[1]) <= p.room
      \* R4: asked before it is granted.  Without: granted, and undone if PUBLISH counts nobody.
      undone == ~R4 /\ fits /\ ~Counted(x, c) /\ ~(c = caller /\ R5) /\ x.s.suspect[c] = ""
      v == CASE c = caller /\ R5 -> "caller" [] x.s.suspect[c] # "" -> "suspect" [] Counted(x, c) \/ (~R4 /\ ~undone) -> "heard" [] OTHER -> "silent"
      y == IF undone THEN Publish([x EXCEPT !.s.tok = @ + 1], c, [M("grant", {e.id}, "") EXCEPT !.g = {Grant(e.id, x.s.tok + 1)}]) ELSE x
      found == [p EXCEPT !.alive = TRUE, !.heard = @ \/ (v = "heard" /\ c # caller)]
      left == p.room - Weight(e.id[1])
  IN CASE v = "silent" -> Scan(y, caller, [p EXCEPT !.silent = @ \cup {c}], i + 1)
       [] v = "suspect" -> Scan(y, caller, p, i + 1)
       [] ~fits -> [x |-> y, p |-> [found EXCEPT !.met = TRUE, !.gone = i - 1, !.rank = i]]
       [] left = 0 -> [x |-> y, p |-> [found EXCEPT !.met = TRUE, !.gone = i, !.rank = i, !.grants = Append(@, e), !.room = 0]]
       [] OTHER -> Scan(y, caller, [found EXCEPT !.gone = i, !.grants = Append(@, e), !.room = left], i + 1)

\* The first n leave the queue.  They lose their turn if they are served, or have themselves to blame.
DropHeads(x, n, p, unfair) ==
  LET heads == {x.s.queue[i].id : i \in 1..n}
      served == {p.grants[i].id : i \in DOMAIN p.grants}
      blame == {id \in heads : ~unfair /\ (Who(id) \in x.j.hurt \/ x.s.suspect[Who(id)] # "")}
      y == Excuse([x EXCEPT !.s.queue = SubSeq(@, n + 1, Len(@))], (heads \cap served) \cup blame)
  IN IF heads \subseteq served THEN y ELSE Note(y, <<"dropped", heads \ served>>)

Advance(x, caller) ==
  IF Room(x) <= 0 THEN x ELSE
  LET r == Scan(x, caller, [room |-> Room(x), alive |-> FALSE, met |-> FALSE, heard |-> FALSE, silent |-> {}, gone |-> 0, rank |-> 0, grants |-> <<>>], 1)
      p == r.p
      several == Cardinality(p.silent) > 1
      y == [r.x EXCEPT !.s.mark = ""]
      n == IF ~p.met /\ (p.heard \/ ~several) THEN p.rank ELSE p.gone
  IN IF p.alive THEN ServeAll(DropHeads(y, n, p, FALSE), p.grants, caller)
     \* R6: if several are silent and nobody is heard, it is not they who are gone.
     ELSE IF several /\ R6 /\ r.x.s.mark # "over" THEN [r.x EXCEPT !.s.mark = "set"]
     ELSE DropHeads(y, p.rank, p, several /\ r.x.s.mark # "over")

\* Ends the leases that have run out.  Their clients are suspects (R10), and are told.
RECURSIVE Settle(_, _)
Settle(x, caller) ==
  LET over == {h \in x.s.hold : h.over} IN
  IF over = {} THEN x ELSE
  LET h == CHOOSE h \in over : TRUE
      c == Who(h.id)
      y == [x EXCEPT !.s.hold = @ \ {h}, !.j.eaten = IF h.ph = "message" /\ c # caller THEN @ \cup {c} ELSE @,
              !.j.placed = @ \ {t \in Of(x, c) : Cohort(c) /\ x.t[t].st \in {"mating", "asking"}}]
      z == [y EXCEPT !.s.suspect[c] = "marked", !.d.reply.sus = @ \/ c = caller]
  IN Settle(IF ~R10Suspects \/ h.ph = "transit" THEN y ELSE IF c = caller THEN z ELSE Publish(z, c, M("suspect", {h.id}, "")), caller)

\* I11: whether as many tickets as may wait are ahead of a new one; if not, the dead leave the queue, as far as R6 lets them.
Limits(x, c, id) ==
  LET Q == {x.s.queue[i].id : i \in DOMAIN x.s.queue}
      live == {q \in Q : Who(q) = c \/ (x.s.suspect[Who(q)] = "" /\ Counted(x, Who(q)))}
      dead == IF DeadWait THEN {} ELSE Q \ live
      silent == {Who(q) : q \in {q \in dead : x.s.suspect[Who(q)] = ""}}
      drop == IF live = {} /\ Cardinality(silent) > 1 THEN {} ELSE dead
      blame == {q \in drop : Who(q) \in x.j.hurt \/ x.s.suspect[Who(q)] # ""}
      full == Cardinality(Q \ dead) >= Limit
      y == IF Cardinality({q \in Q : x.c[Who(q)].life # "dead" \/ Who(q) \in x.s.zombies}) < Limit THEN Bad(x, "refused for the dead") ELSE x
  IN IF Cardinality(Q) < Limit THEN [x |-> x, full |-> FALSE]
     ELSE IF full THEN [x |-> Note(y, <<"no room", id>>), full |-> TRUE]
     ELSE [x |-> Unmark(Excuse(Without(IF drop = {} THEN x ELSE Note(x, <<"dropped", drop>>), drop), blame)), full |-> FALSE]

Granted(x, id, tok) == [x EXCEPT !.d.reply.how = "granted", !.d.reply.g = {g \in @ : g.id # id} \cup {Grant(id, tok)}]

\* R11: the owner is exchanged for another ticket, with a higher token, if it is the one that is named.
Move(x, old, id, ph) ==
  LET y == IF R11Once \/ ph = "transit" THEN [x EXCEPT !.s.hold = @ \ old] ELSE x
  IN Note([y EXCEPT !.s.tok = @ + 1, !.s.hold = @ \cup {[id |-> id, tok |-> x.s.tok + 1, ph |-> ph, over |-> FALSE]}], <<"moves to", id, x.s.tok + 1>>)

RunAdopt(x, c, m) ==
  LET id == CHOOSE id \in m.ids : TRUE
      mine == {h \in HoldOf(x, id) : ~h.over}
      old == {h \in HoldOf(x, OfText(m.tok)) : ~h.over}
      y == IF mine = {} /\ old # {} THEN Move(x, old, id, "full") ELSE IF mine = {} THEN Advance(Settle(x, c), c) ELSE x
      held == HoldOf(y, id)
  IN IF mine = {} /\ old = {} THEN [y EXCEPT !.d.reply.how = "refused"] ELSE Granted(y, id, (CHOOSE h \in held : TRUE).tok)

RunAsk(x, c, m, live) ==
  LET id == CHOOSE id \in m.ids : TRUE
      mine == {h \in HoldOf(x, id) : ~h.over}
      y == IF mine # {} THEN x ELSE IF R3Ask THEN Advance(Settle(x, c), c) ELSE Settle(x, c)
      held == HoldOf(y, id)
  IN IF held # {} THEN Granted(y, id, (CHOOSE h \in held : TRUE).tok)
     ELSE IF y.s.queue = <<>> /\ Weight(id[1]) <= Room(y) THEN LET z == Own(y, id, "full", 999) IN Granted(z, id, z.s.tok)
     ELSE LET lim == IF id \in m.lim /\ ~InQueue(y, id) THEN Limits(y, c, id) ELSE [x |-> y, full |-> FALSE]
          IN IF lim.full THEN [lim.x EXCEPT !.d.reply.how = "full"] ELSE
          LET arr == IF m.arr = 0 THEN y.s.high + 1 ELSE m.arr
              sus == y.s.suspect[c] # ""
              v == [lim.x EXCEPT !.s.high = Max(@, arr), !.d.reply.sus = @ \/ sus, !.d.reply.how = IF ~sus /\ m.how = "wait" THEN "queued" ELSE "not queued"]
              u == IF ~sus /\ m.how = "wait" THEN Enqueue(v, id, arr, live) ELSE IF Cohort(c) THEN Excuse(v, {id}) ELSE v
              at == {u.s.queue[i].arr : i \in {j \in DOMAIN u.s.queue : u.s.queue[j].id = id}}
          IN [u EXCEPT !.d.reply.arr = IF at = {} THEN arr ELSE Min(at)]

RECURSIVE EnqueueAll(_, _, _)
EnqueueAll(x, ids, stays) ==
  IF ids = {} THEN x ELSE
  LET id == CHOOSE id \in ids : \A o \in ids : id[1] <= o[1] IN EnqueueAll(Enqueue(x, id, x.t[id[1]].arr, stays), ids \ {id}, stays)

\* Those that a check has queued for the first time go again where they find no room, the last first.
RECURSIVE Trim(_, _, _)
Trim(r, c, ids) ==
  IF ids = {} THEN r ELSE
  LET id == CHOOSE id \in ids : \A o \in ids : id[1] >= o[1]
      i == CHOOSE i \in DOMAIN r.x.s.queue : r.x.s.queue[i].id = id
      out == Limits(Without(r.x, {id}), c, id)
      y == IF out.full THEN Excuse(out.x, {id}) ELSE Enqueue(out.x, id, r.x.s.queue[i].arr, FALSE)
  IN Trim([x |-> y, full |-> IF out.full THEN r.full \cup {id} ELSE r.full], c, ids \ {id})

\* A check names the tickets of a client that wait.  Those of a deaf client are in the queue only while it runs (R10).
RunCheck(x, c, m) ==
  LET clear == m.how = "proven" /\ (x.s.suspect[c] = "echoed" \/ StaleProof)
      s == Settle(IF clear THEN [x EXCEPT !.s.suspect[c] = ""] ELSE x, c)
      deaf == m.how = "deaf" \/ s.s.suspect[c] # ""
      held == {h \in s.s.hold : h.id \in m.ids}
      names == {h.id : h \in held}
      q == EnqueueAll(s, m.ids \ names, ~deaf)
      v == IF R3Check THEN Advance(q, c) ELSE q
      r == Trim([x |-> v, full |-> {}], c, {id \in m.lim : ~InQueue(s, id) /\ InQueue(v, id)})
      y == r.x
      wait == {id \in m.ids : HoldOf(y, id) = {}}
      out == {id \in wait : deaf /\ InQueue(y, id)}
      z == Excuse(Without(y, out), out)
      says == {<<h.id, IF h.ph = "message" THEN "missed" ELSE "granted">> : h \in held}
              \cup {<<id, "granted">> : id \in m.ids \ (wait \cup names)} \cup {<<id, IF id \in r.full THEN "full" ELSE IF deaf THEN "gone" ELSE "queued">> : id \in wait}
  IN Unmark([z EXCEPT !.d.reply.g = @ \cup {Grant(h.id, h.tok) : h \in held}, !.d.reply.says = says, !.d.reply.how = m.how,
                      !.d.reply.sus = @ \/ s.s.suspect[c] # ""])

\* R9: release, leaving and giving back are one operation: out of the queue, and freed.
RunGive(x, c, m) ==
  LET id == CHOOSE id \in m.ids : TRUE
      mine == {h \in HoldOf(x, id) : ~h.over /\ h.tok = m.tok}
  IN IF mine # {} THEN [Move(x, mine, Transit(id), "transit") EXCEPT !.d.reply.how = "moved"]
     ELSE IF \E h \in HoldOf(x, Transit(id)) : ~h.over THEN [x EXCEPT !.d.reply.how = "moved"]
     ELSE [Advance(Settle(x, c), c) EXCEPT !.d.reply.how = "not the holder"]

RunEnd(x, c, m) ==
  LET id == CHOOSE id \in m.ids : TRUE
      mine == {h \in HoldOf(x, id) : (R9 \/ m.how # "leave") /\ (m.tok = 0 \/ m.tok = h.tok)}
      leaves == mine = {} /\ (R9 \/ m.how = "leave") /\ InQueue(x, id)
      y == IF leaves THEN Without(x, {id}) ELSE [x EXCEPT !.s.hold = @ \ mine]
      s == Settle(Unmark(y), c)
      z == IF R3Leave \/ mine # {} THEN Advance(s, c) ELSE s
      again == {h \in z.s.hold : mine = {} /\ Who(h.id) = c /\ h.ph \in {"message", "reply"} /\ h.id \notin {g.id : g \in z.d.reply.g}}
  IN [z EXCEPT !.d.reply.how = IF mine # {} THEN "freed" ELSE "not the holder", !.d.reply.g = @ \cup {Grant(h.id, h.tok) : h \in again}]

\* live: its client waits for the reply.
Run(x, c, m, live) ==
  LET y == [x EXCEPT !.d.reply = M(m.k, m.ids, ""), !.j.eaten = IF live THEN @ \ {c} ELSE @,
                     !.d.log = Append(@, <<"run", m.k, IF m.ids = {} THEN {c} ELSE m.ids, m.how, live>>)]
      z == CASE m.k = "ask" /\ m.how = "adopt" -> RunAdopt(y, c, m)
             [] m.k = "end" /\ m.how = "give" -> RunGive(y, c, m)
             [] m.k = "ask" -> RunAsk(y, c, m, live)
             [] m.k = "check" -> RunCheck(y, c, m)
             [] m.k = "end" -> RunEnd(y, c, m)
             [] m.k = "echo" -> Publish([y EXCEPT !.s.suspect[c] = IF @ = "marked" THEN "echoed" ELSE @], c, M("echo", {}, ""))
             [] m.k = "subscribe" -> Publish([y EXCEPT !.s.subs = @ \cup {c}], c, M("subscribed", {}, ""))
             [] OTHER -> [Publish(y, c, M("unsubscribed", {}, "")) EXCEPT !.s.subs = @ \ {c}]
  IN IF m.k \in {"ask", "check", "end"} /\ live /\ x.c[c].life # "dead" THEN Send(z, c, "r", z.d.reply) ELSE z

(* ---- The clients ---- *)

GiveBack(x, id, tok) == Send(Note(x, <<"give back", id, tok>>), Who(id), "q", [M("end", {id}, "back") EXCEPT !.tok = tok])

\* R10: its subscription is broken until a new connection has carried an echo.
Doubt(x, c) ==
  IF x.c[c].deaf \/ ~R10Doubt THEN x ELSE
  LET y == [x EXCEPT !.c[c].deaf = TRUE, !.c[c].proven = FALSE, !.c[c].missing = None]
  IN IF x.c[c].want THEN Note(HangUp([y EXCEPT !.j.hurt = @ \cup {c}], c), <<"deaf", c>>) ELSE y

Mates(x, t) == {o \in Of(x, ClientOf(t)) \ {t} : Cohort(ClientOf(t)) /\ x.t[o].st = "mating"}

\* The caller has the lease.
Hold(x, t) ==
  LET c == ClientOf(t)
      reader == Weight(t) < Permits
      tok == x.t[t].tok
      y == [x EXCEPT !.t[t].st = "held", !.t[t].ok = TRUE, !.j.seen = Max(@, tok), !.j.alone = IF reader THEN @ ELSE Max(@, tok),
                     !.j.placed = IF Hears(x, c) THEN @ \cup Mates(x, t) ELSE @ \ Mates(x, t)]
      z == IF Permits > 1 /\ ~Readers THEN y ELSE IF tok <= (IF reader THEN x.j.alone ELSE x.j.seen) THEN Bad(y, "token") ELSE y
  IN Note([z EXCEPT !.c[c].want = @ \/ c \in Curious], <<"holds", Id(x, t), tok>>)

\* A grant to it ran out: it has a new number, so that late notices of the old one are not taken.
Lapsed(x, t) ==
  LET y == IF x.t[t].unsure THEN Outlive(x, {Id(x, t)}) ELSE x
  IN [y EXCEPT !.t[t].n = @ + 1, !.t[t].tok = 0, !.t[t].told = FALSE, !.t[t].unsure = FALSE, !.j.placed = @ \ {t},
               !.t[t].st = IF x.t[t].arr = 0 THEN "asking" ELSE "waiting", !.c[ClientOf(t)].check = TRUE]

\* A renewal: only for the token that it holds, and only before its end.  I12: that of a holder which wants to know looks
\* whether somebody waits, unless it finds that its wish is there; else it leaves that.
Wishes(x, t) == ClientOf(t) \in Curious /\ ~x.t[t].knows
Renewal(x, t) ==
  LET mine == {h \in HoldOf(x, Id(x, t)) : h.tok = x.t[t].tok /\ ~h.over}
      wish == Wishes(x, t) /\ mine # {}
      knows == wish /\ x.s.queue # <<>> /\ \A h \in mine : h.ph # "wants"
      y == [x EXCEPT !.s.hold = (@ \ mine) \cup {[h EXCEPT !.ph = IF wish /\ ~knows THEN "wants" ELSE "full"] : h \in mine},
                     !.t[t].knows = @ \/ knows]
      z == IF wish /\ ~knows /\ x.s.queue # <<>> THEN Bad(y, "untold") ELSE y
  IN [x |-> Note(z, <<"renewal", Id(x, t), mine # {}>>), ok |-> mine # {}]

Confirm(x, t) == LET r == Renewal(x, t) IN IF r.ok THEN Hold(r.x, t) ELSE Lapsed(r.x, t)

\* The end of a ticket.  A mate goes on in its place, and asks before the end goes out.
End(x, t) ==
  LET c == ClientOf(t)
      led == IF MateIsForgotten THEN {} ELSE Mates(x, t)
      y == [x EXCEPT !.t[t].st = "ending", !.t[t].ok = FALSE, !.t[t].e = "owed", !.j.placed = @ \ {t}]
  IN IF led = {} THEN y
     ELSE [y EXCEPT !.c[c].passed = 0, !.j.placed = IF Hears(x, c) /\ x.t[t].ok THEN @ ELSE @ \ led,
                    !.t = [o \in Tickets |-> IF o \in led THEN [@[o] EXCEPT !.st = "asking"] ELSE @[o]]]

RenewHeld(x, t) == LET r == Renewal(x, t) IN IF r.ok THEN r.x ELSE End(Note(r.x, <<"hold lost", Id(x, t)>>), t)

\* R8: what a ticket does with the notice of a grant.
Offer(x, g) ==
  LET t == g.id[1]
      st == x.t[t].st
      y == [x EXCEPT !.t[t].tok = g.tok, !.t[t].in = @ \/ Limit > 0]
  IN CASE ~Known(x, g.id) -> GiveBack(x, g.id, g.tok)
       [] st \in {"held", "ending"} -> IF (st = "held" /\ R8Held) \/ (st = "ending" /\ R8Ending) THEN x ELSE GiveBack(x, g.id, g.tok)
       [] st = "confirming" /\ g.tok <= x.t[t].tok -> x
       [] OTHER -> IF g.old THEN [y EXCEPT !.t[t].st = "confirming"] ELSE Hold(y, t)

\* news: it came as it should.
RECURSIVE Absorb(_, _, _)
Absorb(x, G, news) ==
  IF G = {} THEN x ELSE
  LET g == CHOOSE g \in G : \A o \in G : g.tok < o.tok \/ (g.tok = o.tok /\ g.id[1] <= o.id[1])
      y == IF ~news THEN x ELSE [x EXCEPT !.t[g.id[1]].told = @ \/ Known(x, g.id),
                                          !.c[Who(g.id)].missing = IF @ = g.id THEN None ELSE @]
  IN Absorb(Offer(y, g), G \ {g}, news)

\* A call that was refused is over. Its end is sent if anything of it may still run.
Refused(y, t) ==
  LET x == IF y.t[t].in THEN Bad(y, "refused again") ELSE y
  IN IF MayRun(x, Id(x, t)) \/ Mates(x, t) # {} THEN End(x, t) ELSE [x EXCEPT !.t[t] = NoTicket("ended", x.t[t].n), !.j.placed = @ \ {t}]

Asked(x, c, m) ==
  LET id == CHOOSE id \in m.ids : TRUE
      t == id[1]
      y == IF ~Known(x, id) THEN x
           ELSE IF m.how = "full" THEN IF x.t[t].st = "asking" THEN Refused(x, t) ELSE x
           ELSE IF m.how = "refused" THEN IF x.t[t].st = "asking" THEN End(x, t) ELSE x
           ELSE [x EXCEPT !.t[t].in = @ \/ (Limit > 0 /\ m.how # "not queued"),
                          !.t[t].arr = IF @ = 0 THEN m.arr ELSE @,
                          !.t[t].st = IF @ # "asking" \/ m.how = "granted" THEN @ ELSE IF m.how = "queued" THEN "waiting" ELSE "subscribing"]
      z == IF m.sus THEN Doubt(Absorb(y, m.g, TRUE), c) ELSE Absorb(y, m.g, TRUE)
  IN IF m.how # "not queued" THEN z ELSE [z EXCEPT !.c[c].want = TRUE, !.c[c].check = @ \/ (x.c[c].want /\ Hears(z, c))]

RECURSIVE RefusedAll(_, _)
RefusedAll(x, T) == IF T = {} THEN x ELSE RefusedAll(Refused(x, Min(T)), T \ {Min(T)})

Checked(x, c, m) ==
  LET y == IF m.sus THEN Doubt(Absorb(x, m.g, FALSE), c) ELSE Absorb(x, m.g, FALSE)
      missed == {t \in Of(y, c) : <<Id(y, t), "missed">> \in m.says /\ Known(y, Id(y, t)) /\ m.how # "deaf" /\ y.c[c].sub = "on" /\ ~y.t[t].told}
      new == [t \in Tickets |-> [y.t[t] EXCEPT
               !.told = @ \/ (Known(y, Id(y, t)) /\ <<Id(y, t), "granted">> \in m.says),
               !.in = @ \/ (Limit > 0 /\ Waits(y, t) /\ <<Id(y, t), "queued">> \in m.says),
               !.st = IF ~Waits(y, t) THEN @ ELSE IF <<Id(y, t), "queued">> \in m.says THEN "waiting"
                      ELSE IF <<Id(y, t), "gone">> \in m.says THEN "subscribing" ELSE @]]
      full == {t \in Tickets : Waits(y, t) /\ <<Id(y, t), "full">> \in m.says}
  IN RefusedAll([y EXCEPT !.t = new, !.c[c].missing = IF missed = {} THEN @ ELSE Id(y, Min(missed)),
                          !.c[c].proven = IF m.how = "proven" THEN FALSE ELSE @], full)

\* R1: the end is repeated after whatever may still run when it was sent.
Ended(x, c, m) ==
  LET y == Absorb(x, m.g, TRUE)
      id == CHOOSE id \in m.ids : TRUE
      t == id[1]
      \* A hold that could not be handed over may be another, which an old ask has made: that is ended too.
      another == R11End /\ y.t[t].gives /\ m.how = "not the holder"
      again == another \/ IF EndWhenAnswered THEN MayRun(y, id) ELSE y.t[t].again
  IN IF ~Known(y, id) \/ y.t[t].st # "ending" THEN y
     ELSE IF R1Repeat /\ again THEN [y EXCEPT !.t[t].e = "after", !.t[t].gives = FALSE, !.t[t].ok = FALSE] ELSE [y EXCEPT !.t[t] = NoTicket("ended", id[2])]

Suspected(x, c, id) ==
  LET t == id[1]
      y == IF ~Known(x, id) THEN x ELSE IF x.t[t].st = "held" THEN RenewHeld(x, t) ELSE IF Waits(x, t) THEN Lapsed(x, t) ELSE x
  IN [Doubt(y, c) EXCEPT !.c[c].check = TRUE]

Receive(x, c, m) ==
  LET k == x.c[c]
      y == Note(x, <<"receive", m.k, IF m.ids = {} THEN {c} ELSE m.ids, m.how, {<<g.id, g.tok>> : g \in m.g}>>)
  IN CASE m.k = "ask" -> Asked(y, c, m)
       [] m.k = "check" -> Checked(y, c, m)
       [] m.k = "end" -> Ended(y, c, m)
       [] m.k = "grant" -> Absorb(y, m.g, TRUE)
       [] m.k = "suspect" -> Suspected(y, c, CHOOSE id \in m.ids : TRUE)
       [] m.k = "wanted" -> [y EXCEPT !.t = [t \in Tickets |-> IF ClientOf(t) = c /\ @[t].st = "held" /\ @[t].tok <= m.tok
                                                               THEN [@[t] EXCEPT !.knows = TRUE] ELSE @[t]]]
       [] m.k = "echo" -> IF k.echo = "" THEN y ELSE [y EXCEPT !.c[c].echo = "", !.c[c].deaf = FALSE, !.c[c].proven = TRUE, !.c[c].check = TRUE]
       [] m.k = "subscribed" -> IF ~k.want THEN Send([y EXCEPT !.c[c].sub = "leaving"], c, "l", M("unsubscribe", {}, ""))
                                ELSE IF k.deaf THEN Send([y EXCEPT !.c[c].sub = "on", !.c[c].echo = "out"], c, "q", M("echo", {}, ""))
                                ELSE [y EXCEPT !.c[c].sub = "on", !.c[c].check = TRUE]
       [] m.k = "unsubscribed" -> IF k.sub = "leaving" THEN [y EXCEPT !.c[c].sub = ""] ELSE y
       [] OTHER -> HangUp(y, c)

(* ---- What follows at once ---- *)

\* R1: what is under way on a connection arrives in order.
Next1(x, c, l) == IF x.net[c][l] = <<>> THEN 0 ELSE
                  LET L == x.net[c][l]
                      prompt == {i \in DOMAIN L : ~L[i].late /\ (i = 1 \/ (~R1Order /\ l = "q"))}
                  IN IF prompt = {} \/ (l \in {"r", "p"} /\ x.c[c].life # "alive") THEN 0 ELSE Min(prompt)
Ready(x, c) == IF x.net[c] = NoNet THEN {} ELSE {l \in {"q", "r", "l", "p"} : Next1(x, c, l) > 0}
Deliver(x, c, l) ==
  LET i == Next1(x, c, l)
      m == x.net[c][l][i]
      y == [x EXCEPT !.net[c][l] = SubSeq(@, 1, i - 1) \o SubSeq(@, i + 1, Len(@))]
  IN IF l \in {"q", "l"} THEN Run(y, c, m, TRUE) ELSE Receive(y, c, m)

\* I11: a ticket has the limit until it has a place.
Bounded(x, t) == Limit > 0 /\ (~x.t[t].in \/ RefusedAgain)

\* What a ticket owes.
Owes(x, t) ==
  LET k == x.t[t] IN
  /\ x.c[ClientOf(t)].life = "alive"
  /\ \/ k.st = "asking" /\ ~InFlight(x, Id(x, t))
     \/ k.st = "ending" /\ (k.e = "owed" \/ (k.e = "after" /\ ~MayRun(x, Id(x, t))))
     \/ k.st = "confirming"
     \/ k.st = "held" /\ ~k.ok
Pay(x, t) ==
  LET k == x.t[t]
      id == Id(x, t)
      c == ClientOf(t)
  IN CASE k.st = "asking" /\ k.from # 0 -> Send(x, c, "q", [M("ask", {id}, "adopt") EXCEPT !.tok = k.from])
       [] k.st = "ending" /\ k.gives -> Send([x EXCEPT !.t[t].e = "out", !.t[t].again = MayRun(x, id)], c, "q", [M("end", {id}, "give") EXCEPT !.tok = k.tok])
       [] k.st = "asking" -> Send(x, c, "q", [M("ask", {id}, IF Hears(x, c) THEN "wait" ELSE "look") EXCEPT !.arr = k.arr, !.lim = IF Bounded(x, t) THEN {id} ELSE {}])
       [] k.st = "ending" -> Send([x EXCEPT !.t[t].e = "out", !.t[t].again = MayRun(x, id)], c, "q", M("end", {id}, IF k.tok = 0 THEN "leave" ELSE "release"))
       [] k.st = "confirming" -> Confirm(x, t)
       [] OTHER -> End(Note(x, <<"hold lost", id>>), t)

\* What a client owes: a subscription, and a check (never two at a time).
OwesToo(x, c) == x.c[c].life = "alive" /\ ((x.c[c].want /\ x.c[c].sub = "") \/ (x.c[c].check /\ ~Checking(x, c)))
PayToo(x, c) ==
  LET k == x.c[c]
      how == IF ~Hears(x, c) THEN "deaf" ELSE IF k.proven THEN "proven" ELSE "hears"
      y == [x EXCEPT !.c[c].check = FALSE]
  IN IF k.want /\ k.sub = "" THEN Send([x EXCEPT !.c[c].sub = "sent"], c, "l", M("subscribe", {}, ""))
     ELSE IF AnyWaits(x, c) THEN 
     Send(y, c, "q", [M("check", {Id(x, t) : t \in {t \in Of(x, c) : Waits(x, t)}}, how) EXCEPT
                        !.lim = {Id(x, t) : t \in {t \in Of(x, c) : Waits(x, t) /\ Bounded(x, t)}}]) ELSE y

Lane(S) == IF "q" \in S THEN "q" ELSE IF "r" \in S THEN "r" ELSE IF "l" \in S THEN "l" ELSE "p"
RECURSIVE Flow(_)
Flow(x) ==
  IF x.j.bad # "" THEN x ELSE
  LET ready == {c \in Clients : Ready(x, c) # {}} IN
  IF ready # {} THEN Flow(Deliver(x, Min(ready), Lane(Ready(x, Min(ready))))) ELSE
  LET owe == {t \in Tickets : Owes(x, t)}
      first == {t \in owe : x.t[t].st = (IF MateAsksLater THEN "ending" ELSE "asking")}
  IN IF owe # {} THEN Flow(Pay(x, IF first # {} THEN Min(first) ELSE Min(owe))) ELSE
  LET gone == {id \in x.past : x.c[Who(id)].life = "alive" /\ ~MayRun(x, id)} IN
  IF gone # {} THEN LET id == CHOOSE id \in gone : TRUE IN Flow(GiveBack([x EXCEPT !.past = @ \ {id}], id, 0)) ELSE
  LET too == {c \in Clients : OwesToo(x, c)} IN
  IF too # {} THEN Flow(PayToo(x, Min(too))) ELSE x

(* ---- Steps: each is the set of the worlds in which it begins, empty if it cannot be made ---- *)

If(may, x, text) == IF may THEN {Note(x, text)} ELSE {}

Alive(c) == w.c[c].life = "alive"
Active(c) == {t \in Of(w, c) : w.t[t].st \notin {"new", "ended"}}
First(t) == \A u \in Of(w, ClientOf(t)) : t <= u
Like(t, u) ==
  LET c == ClientOf(t)
      d == ClientOf(u)
  IN /\ Weight(t) = Weight(u) /\ Cardinality(Of(w, c)) = Cardinality(Of(w, d)) /\ Slots(c) = Slots(d) /\ Passes(c) = Passes(d)
     /\ {c, d} \cap (Replica \cup Curious) = {}

\* Clients that are alike call first in one order only.
Call(t) ==
  LET c == ClientOf(t)
      leads == {o \in Active(c) : Cohort(c) /\ w.t[o].st \notin {"ending", "mating"}}
      may == /\ Alive(c) /\ w.t[t].st = "new" /\ Cardinality(Active(c)) < Slots(c)
             /\ \A u \in Of(w, c) : u < t => w.t[u].st # "new"
             /\ First(t) => \A u \in Tickets : u < t /\ First(u) /\ Like(t, u) => w.t[u].st # "new" \/ ~Alive(ClientOf(u))
             /\ \A o \in leads : Mates(w, o) = {}
  IN IF leads = {} THEN If(may, [w EXCEPT !.t[t].st = "asking"], <<"asks", Id(w, t)>>)
     ELSE If(may, [w EXCEPT !.t[t].st = "mating", !.t[t].arr = w.s.high + 1, !.s.high = @ + 1, !.c[c].want = @ \/ w.c[c].passed >= Passes(c),
                            !.j.placed = IF Hears(w, c) /\ \E o \in leads : w.t[o].st = "held" THEN @ \cup {t} ELSE @], <<"joins", Id(w, t)>>)

\* A cohort passes its hold on under the ticket of its leader, with a new token.
PassOn(x, t) ==
  LET c == ClientOf(t)
      mates == Mates(x, t)
  IN IF mates = {} \/ x.c[c].passed >= Passes(c) THEN End(x, t)
     ELSE Note([x EXCEPT !.c[c].passed = @ + 1, !.s.tok = @ + 1, !.j.seen = x.s.tok + 1, !.j.alone = x.s.tok + 1, !.j.placed = @ \ mates,
                         !.t = [o \in Tickets |-> IF o \in mates THEN NoTicket("ended", 0) ELSE @[o]]], <<"passes on", c, x.s.tok + 1>>)
Release(t) == IF Alive(ClientOf(t)) /\ w.t[t].st = "held" THEN {PassOn(Note(w, <<"releases", Id(w, t)>>), t)} ELSE {}
\* R11: the holder has ended before anything is sent.
HandOver(t) ==
  LET y == End(Note(w, <<"hands over", Id(w, t)>>), t)
  IN IF Alive(ClientOf(t)) /\ w.t[t].st = "held" /\ ClientOf(t) \in Givers
     THEN {[y EXCEPT !.t[t].gives = TRUE, !.t[t].ok = ~R11Ends, !.texts = @ \cup {TextOf(Id(w, t))}]} ELSE {}
Adopt(t, text) == If(Alive(ClientOf(t)) /\ w.t[t].st = "new" /\ ClientOf(t) # text \div 1000, [w EXCEPT !.t[t].st = "asking", !.t[t].from = text], <<"adopts", Id(w, t)>>)
Cancel(t) ==
  LET y == Note([w EXCEPT !.b.cancels = @ - 1], <<"cancels", Id(w, t)>>)
      st == w.t[t].st
  IN IF w.b.cancels = 0 \/ ~Alive(ClientOf(t)) \/ st \notin {"asking", "subscribing", "waiting", "confirming", "mating"} THEN {}
     ELSE IF st = "mating" THEN {[y EXCEPT !.t[t] = NoTicket("ended", 0), !.j.placed = @ \ {t}]} ELSE {End(y, t)}
Renew(t) == IF /\ Alive(ClientOf(t)) /\ w.t[t].st = "held"
               /\ ~\E h \in HoldOf(w, Id(w, t)) : h.tok = w.t[t].tok /\ Full(h) /\ (~Wishes(w, t) \/ (h.ph = "wants" /\ w.s.queue = <<>>))
            THEN {RenewHeld(w, t)} ELSE {}
Check(c) == If(Alive(c) /\ AnyWaits(w, c) /\ ~Checking(w, c), [w EXCEPT !.c[c].check = TRUE], <<"checks", c>>)
Drop(c) == If(w.b.drops > 0 /\ Alive(c) /\ Active(c) = {} /\ w.c[c].sub = "on" /\ w.c[c].want,
              Put([w EXCEPT !.b.drops = @ - 1, !.c[c] = [NewClient EXCEPT !.sub = "leaving", !.half = w.c[c].half, !.passed = w.c[c].passed]],
                  c, "l", M("unsubscribe", {}, "")), <<"unsubscribes", c>>)

\* What was held up arrives, or its client gives up the connection first; an old request runs, or is too late.
LateAt(c, l) == w.net[c][l] # <<>> /\ Head(w.net[c][l]).late
Arrive(c, l) == IF LateAt(c, l) /\ (l \in {"r", "p"} => Alive(c))
                THEN {Note([w EXCEPT !.net[c][l][1].late = FALSE], <<"at last", Head(w.net[c][l]).k, c, l>>)} ELSE {}
GiveUp(c) == IF Alive(c) /\ (LateAt(c, "q") \/ LateAt(c, "r")) THEN {Cut(w, c, TRUE)} ELSE {}
RunOld(m) == LET id == CHOOSE id \in m.ids : TRUE IN {Run([w EXCEPT !.old = @ \ {m}, !.stale = @ \ {m}], Who(id), m, FALSE)}
TooLate(m) == {Note([w EXCEPT !.old = @ \ {m}, !.stale = IF R7 THEN @ ELSE @ \cup {m}], <<"too late", m.k, m.ids>>)}

\* The time of a lease is over, and with it that of all notices of it (I4).
Older(L, h) == [i \in DOMAIN L |-> [L[i] EXCEPT !.g = {[g EXCEPT !.old = @ \/ (g.id = h.id /\ g.tok = h.tok)] : g \in @}]]
LeaseEnds(h) ==
  LET t == h.id[1]
      mine == Known(w, h.id) /\ w.t[t].tok = h.tok
  IN If(~h.over /\ ~(mine /\ w.t[t].ok /\ Alive(ClientOf(t))),
        [w EXCEPT !.s.hold = (@ \ {h}) \cup {[h EXCEPT !.over = TRUE]}, !.t[t].ok = @ /\ ~mine,
                  !.net = [c \in Clients |-> [w.net[c] EXCEPT !.r = Older(@, h), !.p = Older(@, h)]]], <<"lease ends", h.id>>)
MarkEnds == If(w.s.mark = "set", [w EXCEPT !.s.mark = "over"], <<"mark ends">>)
Misses(c) == IF Alive(c) /\ w.c[c].missing # None THEN {Doubt([w EXCEPT !.c[c].missing = None], c)} ELSE {}
NoEcho(c) == If(Alive(c) /\ w.c[c].echo = "out" /\ w.net[c].q = <<>> /\ w.net[c].p = <<>>, HangUp(w, c), <<"no echo", c>>)
Continue(c) == If(w.c[c].life = "stopped", [w EXCEPT !.c[c].life = "alive"], <<"continued", c>>)

Ordinary ==
  UNION ({Call(t) \cup Release(t) \cup HandOver(t) \cup Cancel(t) \cup Renew(t) : t \in Tickets}
         \cup {Adopt(t, text) : t \in Tickets, text \in w.texts}
         \cup {Check(c) \cup Drop(c) \cup GiveUp(c) \cup Misses(c) \cup NoEcho(c) \cup Continue(c) : c \in Clients}
         \cup {Arrive(c, l) : c \in Clients, l \in {"q", "r", "l", "p"}}
         \cup {RunOld(m) : m \in w.old \cup w.stale} \cup {TooLate(m) : m \in w.old} \cup {LeaseEnds(h) : h \in w.s.hold}) \cup MarkEnds

\* Faults.
Kill(x, C, late) ==
  LET hit == {c \in C \cap x.s.subs : ~x.c[c].half} IN
  [x EXCEPT !.s.subs = @ \ C, !.j.hurt = @ \cup (C \cap x.s.subs),
            !.net = [c \in Clients |-> [x.net[c] EXCEPT !.p = IF c \in hit THEN Append(@, [M("gone", {}, "") EXCEPT !.late = late]) ELSE @]]]
Die(x, c) ==
  LET y == HangUp(x, c)
      runs == SelectSeq(x.net[c].q, LAMBDA m : m.k # "echo")
  IN [y EXCEPT !.old = @ \cup {[runs[i] EXCEPT !.late = FALSE] : i \in DOMAIN runs}, !.net[c] = NoNet, !.j.hurt = @ \cup {c},
               !.c[c] = [NewClient EXCEPT !.life = "dead"], !.j.placed = @ \ Of(x, c), !.past = {id \in @ : Who(id) # c},
               !.t = [t \in Tickets |-> IF ClientOf(t) = c THEN NoTicket("ended", x.t[t].n) ELSE x.t[t]]]
Fault(c) ==
  LET x == [w EXCEPT !.b.faults = @ - 1]
      hears == c \in w.s.subs /\ ~w.c[c].half
  IN IF ~Alive(c) THEN {} ELSE
     {Note(Die(x, c), <<"dies", c>>)}
     \cup If(Active(c) # {}, [x EXCEPT !.c[c].life = "stopped", !.j.hurt = @ \cup {c}], <<"stopped", c>>)
     \cup If(hears, [x EXCEPT !.c[c].half = TRUE, !.j.hurt = @ \cup {c}, !.net[c].l = <<>>, !.net[c].p = <<>>], <<"half open", c>>)
     \cup If(hears, Kill(x, {c}, FALSE), <<"subscription cut", c>>)
     \cup (IF w.net[c].q \o w.net[c].r = <<>> THEN {} ELSE {Cut(x, c, run) : run \in BOOLEAN})
     \cup (IF w.net[c].p = <<>> THEN {} ELSE
           If(Head(w.net[c].p).k \in {"grant", "suspect", "echo", "wanted"}, [x EXCEPT !.net[c].p = Tail(@), !.j.hurt = @ \cup {c}], <<"lost", Head(w.net[c].p).k, c>>))
Faulty == IF w.b.faults = 0 THEN {} ELSE
  UNION {Fault(c) : c \in Clients}
  \cup If(Cardinality(w.s.subs) > 1, Kill([w EXCEPT !.b.faults = @ - 1], w.s.subs, TRUE), <<"all subscriptions cut">>)

\* What a step leads to.  Something may happen to one of the messages that it sends.
Ends(y) ==
  LET base == Flow(y) IN
  {base} \cup UNION {{Flow([y EXCEPT !.d.plan = [n |-> n, do |-> d]]) : d \in May(y, base.d.sends[n])} : n \in DOMAIN base.d.sends}
Steps == {s \in {[w |-> [x EXCEPT !.d = NoDoing], told |-> x.d.log] : x \in UNION {Ends(y) : y \in Ordinary \cup Faulty}} : s.w # w}

Through == (\A t \in Tickets : w.t[t].st = "ended") /\ \A c \in Clients : w.c[c].life # "stopped"

Init == w = Start /\ told = <<>>
Next == \/ \E s \in Steps : w' = s.w /\ told' = s.told
        \/ Through /\ UNCHANGED <<w, told>>
Spec == Init /\ [][Next]_<<w, told>> /\ WF_<<w, told>>(Next)
View == w

(* ---- What must hold.  That nobody is stranded is that there is no deadlock. ---- *)

UnderWay(id) == \E l \in {"q", "r", "p"} : \E i \in DOMAIN w.net[Who(id)][l] :
                  LET m == w.net[Who(id)][l][i] IN (m.k = "end" /\ id \in m.ids) \/ id \in {g.id : g \in m.g}
\* I1, I9: no more believe that they hold than there are permits.
Believers == {[id |-> Id(w, t)] : t \in {u \in Tickets : w.t[u].st \in {"held", "ending"} /\ w.t[u].ok}}
NoTwoBelievers == Sum(Believers) <= Permits
\* No full lease runs of which no living client knows.
NoPhantom == \A h \in w.s.hold : ~Full(h) \/ h.over \/ w.c[Who(h.id)].life # "alive" \/ Known(w, h.id) \/ h.id \in w.past \/ UnderWay(h.id)
\* I3: nobody is granted ahead of a ticket that came before, lives, hears and was not rightly skipped.
NoOvertaking == w.j.bad # "overtaken"
\* A client that says nothing lets one grant lapse, not two.
NoSecondLapse == w.j.bad # "second lapse"
\* I11: a ticket is refused only before it has a place, and only where as many of the living wait as may.
RefusedRightly == w.j.bad \notin {"refused again", "refused for the dead"}
\* I12: a holder that wants to know is told that somebody waits by its next renewal at the latest.
ToldInTime == w.j.bad # "untold"
\* I2: tokens rise in the order in which holders begin to believe.
TokensRise == w.j.bad # "token"
\* When all are through, no ticket of the living is in the queue.
NoGhost == Through /\ w.old \cup w.stale = {} /\ (\A c \in Clients : w.net[c] = NoNet) =>
             \A i \in DOMAIN w.s.queue : w.c[Who(w.s.queue[i].id)].life = "dead"
\* Where it is not stranded, it gets on.
EverybodyGetsIn == <>Through
=============================================================================
