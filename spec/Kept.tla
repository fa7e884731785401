-------------------------------- MODULE Kept --------------------------------
(* A hold that its client keeps from one use to the next (waitqueue/doc.go, "A hold that is kept": I13, I14).     *)
(* What Headwaiter.tla says of the queue, of messages that wake, and of ends that are repeated is taken for       *)
(* granted here.  There is a clock here, because tokens go by it.                                                 *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  ByClock,       \* the token of a use is above that of the grant by less than the time that has passed since
  Reserves,      \* where the client does not tell, the server takes all tokens that it may have come to for used
  TellsLast,     \* an end tells the last token that was used
  AsksFirst,     \* a hold that was waited for is not used again before a renewal has told of the tickets behind it
  GivesBack,     \* an idle hold is given back when its client knows that somebody waits
  LooksAtClock,  \* no use begins behind the end of the lease
  Strangers,     \* 1, 2, ...; others who want the lock, each once
  Uses, Lease,   \* how many tokens a hold reserves beyond the first, and how long a lease lasts
  Ahead,         \* how far the last token is ahead of the clock at first
  Asks,          \* budgets: how often the client asks for the lock,
  Ticks, Lost, Stops, Forgets  \* how far the clock goes, messages that are lost, stops of the client, and servers that forget

VARIABLES w, told

Nobody == 0
Keeper == 9
Max(i, j) == IF i > j THEN i ELSE j
Note(x, text) == [x EXCEPT !.log = Append(@, text)]
Bad(x, kind) == [x EXCEPT !.bad = IF @ = "" THEN kind ELSE @]

\* s: the server: who holds, by which token first, the last token, until when, whether the holder wants to be told, the queue.
\* k: the client: "out", "asks", "use", "idle"; whether it knows that somebody waits, and a renewal was answered since the
\* grant; the token of that, its own, when it was, and until when it is certain.  word, end: a message to it, and its end, on
\* their way.
NoEnd == [first |-> 0, tok |-> 0]
Out == [st |-> "out", knows |-> FALSE, sure |-> FALSE, first |-> 0, tok |-> 0, at |-> 0, until |-> 0]
Start == [now |-> 1, s |-> [owner |-> Nobody, first |-> 0, last |-> IF Ahead > 0 THEN 1 + Ahead ELSE 0, until |-> 0, wish |-> FALSE, queue |-> <<>>],
          k |-> Out, stopped |-> FALSE, word |-> FALSE, end |-> NoEnd, others |-> [i \in Strangers |-> "new"],
          b |-> [asks |-> Asks, lost |-> Lost, stops |-> Stops, forgets |-> Forgets], forgot |-> FALSE, seen |-> 0, bad |-> "", log |-> <<>>]

Believes(x, tok) == IF tok <= x.seen THEN Bad(x, "token") ELSE [x EXCEPT !.seen = tok]
OthersHold(x) == \E i \in Strangers : x.others[i] = "holds"

\* A lock that is free goes to the first in the queue, by the next token.  atOnce: it did not wait.  No token gets ahead of the
\* clock by that, as more time passes than from one token to the next.
Grant(w0, c, atOnce) ==
  LET tok == Max(w0.s.last + 1, w0.now)
      x == IF Ahead = 0 THEN [w0 EXCEPT !.now = tok] ELSE w0
      y == [x EXCEPT !.s.owner = c, !.s.first = tok, !.s.last = tok, !.s.until = x.now + Lease, !.s.wish = FALSE]
      z == IF c # Keeper THEN [y EXCEPT !.others[c] = "holds"]
           ELSE [y EXCEPT !.k = [Out EXCEPT !.st = "use", !.sure = atOnce, !.first = tok, !.tok = tok, !.at = x.now, !.until = x.now + Lease]]
  IN Note(Believes(z, tok), <<"granted", c, tok>>)
Serve(x) == IF x.s.owner # Nobody \/ x.s.queue = <<>> THEN x
            ELSE Grant([x EXCEPT !.s.queue = Tail(@)], Head(x.s.queue), FALSE)
Free(x, last) == Serve([x EXCEPT !.s.owner = Nobody, !.s.last = Max(@, last), !.s.wish = FALSE])
Ask(x, c) == IF x.s.owner = Nobody /\ x.s.queue = <<>> THEN Grant(x, c, TRUE) ELSE [x EXCEPT !.s.queue = Append(@, c)]

\* The hold ends, and the server is told.
GiveBack(x) == Note([x EXCEPT !.k = Out, !.word = FALSE, !.end = [first |-> x.k.first, tok |-> x.k.tok]], <<"gives back", x.k.tok>>)
Hears(x) == LET y == [x EXCEPT !.k.knows = TRUE] IN IF x.k.st = "idle" /\ GivesBack THEN GiveBack(y) ELSE y

(* ---- Steps: each is the set of the worlds in which it begins, empty if it cannot be made ---- *)

If(may, x, text) == IF may THEN {[x EXCEPT !.log = <<text>> \o @]} ELSE {}
Runs == ~w.stopped
Has == w.k.st \in {"use", "idle"}
Owns == w.s.owner = Keeper /\ w.s.first = w.k.first

Calls == IF Runs /\ w.k.st = "out" /\ w.end = NoEnd /\ w.b.asks > 0
         THEN {Ask(Note([w EXCEPT !.b.asks = @ - 1, !.k.st = "asks"], <<"asks", Keeper>>), Keeper)} ELSE {}
\* The use is over.
Rests == IF ~(Runs /\ w.k.st = "use") THEN {}
         ELSE IF w.k.knows \/ (AsksFirst /\ ~w.k.sure) THEN {GiveBack(w)} ELSE {Note([w EXCEPT !.k.st = "idle"], <<"rests">>)}
\* The next call of the client takes it up, and sends nothing.
TakesUp ==
  LET tok == w.k.tok + 1
      may == /\ Runs /\ w.k.st = "idle" /\ ~w.k.knows /\ tok - w.k.first <= Uses
             /\ ByClock => tok - w.k.first < w.now - w.k.at
             /\ LooksAtClock => w.now < w.k.until
      x == [w EXCEPT !.k.st = "use", !.k.tok = tok]
      y == IF ~w.k.sure /\ w.s.queue # <<>> THEN Bad(x, "kept on") ELSE x
      \* Who does not know yet that the server has forgotten may come behind a hold with a higher token, not with the same.
      z == IF w.forgot THEN [y EXCEPT !.seen = Max(@, tok)] ELSE Believes(IF OthersHold(w) THEN Bad(y, "believers") ELSE y, tok)
  IN If(may, z, <<"takes it up", tok>>)
Expires == IF Runs /\ w.k.st = "idle" THEN {GiveBack(w)} ELSE {}
\* A renewal looks whether somebody waits, and else leaves the wish to be told (I12).
Renews ==
  LET x == [w EXCEPT !.s.until = w.now + Lease, !.k.until = w.now + Lease, !.k.sure = TRUE]
      y == IF w.s.queue # <<>> THEN Hears(x) ELSE [x EXCEPT !.s.wish = TRUE]
  IN IF Runs /\ Has /\ w.now < w.k.until /\ (~Owns \/ x # w \/ y # w)
     THEN {Note(IF Owns THEN y ELSE [w EXCEPT !.k = Out, !.word = FALSE], <<"renews", Owns>>)} ELSE {}
\* Its own clock tells it that the lease is over.
Loses == If(Runs /\ Has /\ w.now >= w.k.until /\ LooksAtClock, [w EXCEPT !.k = Out, !.word = FALSE], <<"has lost it">>)
Told == If(Runs /\ w.word, Hears([w EXCEPT !.word = FALSE]), <<"is told">>)
Ended == If(w.end # NoEnd, LET x == [w EXCEPT !.end = NoEnd]
                           IN IF w.s.owner = Keeper /\ w.s.first = w.end.first THEN Free(x, IF TellsLast THEN w.end.tok ELSE 0) ELSE x,
            <<"the end arrives">>)

\* The first who queues behind a wish has it told.
Comes(i) ==
  LET x == Ask(Note([w EXCEPT !.others[i] = "waits"], <<"asks", i>>), i)
      y == IF x.s.wish THEN [x EXCEPT !.s.wish = FALSE, !.word = w.k.st # "out"] ELSE x
  IN IF w.others[i] # "new" THEN {}
     ELSE {y} \cup (IF y.word /\ w.b.lost > 0 THEN {Note([y EXCEPT !.word = FALSE, !.b.lost = @ - 1], <<"the message is lost">>)} ELSE {})
Goes(i) == If(w.others[i] = "holds", LET x == [w EXCEPT !.others[i] = "done"] IN IF w.s.owner = i THEN Free(x, 0) ELSE x, <<"releases", i>>)

LeaseEnds == If(w.s.owner = Keeper /\ w.now >= w.s.until, Free(w, IF Reserves THEN w.s.first + Uses ELSE 0), <<"the lease ends">>)
Tick == If(w.now < Ticks, [w EXCEPT !.now = @ + 1], <<"time passes">>)
\* Stopped for some time, or for ever.
Stop == If(Runs /\ w.b.stops > 0 /\ w.k.st # "out", [w EXCEPT !.stopped = TRUE, !.b.stops = @ - 1], <<"is stopped">>)
Continue == If(w.stopped, [w EXCEPT !.stopped = FALSE], <<"goes on">>)
\* A restart without data, FLUSHALL: those who wait come back, and time has passed.
Forget == If(w.b.forgets > 0, Serve([w EXCEPT !.b.forgets = @ - 1, !.forgot = TRUE, !.word = FALSE, !.now = Max(w.now, w.s.last) + 1,
                                              !.s = [Start.s EXCEPT !.queue = w.s.queue]]), <<"the server forgets">>)

Steps == {[w |-> [x EXCEPT !.log = <<>>], told |-> x.log] : x \in
  Calls \cup Rests \cup TakesUp \cup Expires \cup Renews \cup Loses \cup Told \cup Ended \cup LeaseEnds \cup Tick \cup Stop \cup Continue \cup Forget
  \cup UNION {Comes(i) \cup Goes(i) : i \in Strangers}}

Through == (\A i \in Strangers : w.others[i] = "done") /\ w.k.st = "out"
Init == w = Start /\ told = <<>>
Next == \/ \E s \in Steps : w' = s.w /\ told' = s.told
        \/ (Through \/ w.now >= Ticks) /\ UNCHANGED <<w, told>>
Spec == Init /\ [][Next]_<<w, told>>
View == w

(* ---- What must hold ---- *)

\* I1: no use and no other hold at a time, but where the server has forgotten.
NoTwoBelievers == w.bad # "believers" /\ (w.forgot \/ ~(w.k.st = "use" /\ w.now < w.k.until /\ OthersHold(w)))
\* I13: tokens rise over uses and other holds, also where the server has forgotten the last, unless that was ahead of the clock.
TokensRise == w.bad # "token"
\* I14: nothing is kept of which its client knows that somebody waits, nor used again unasked behind a wait in the queue.
NothingKept == w.bad # "kept on" /\ ~(w.k.st = "idle" /\ w.k.knows)
=============================================================================
