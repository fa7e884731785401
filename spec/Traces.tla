------------------------------- MODULE Traces -------------------------------
(* What the real code did in runs of the simulation, held against Headwaiter.tla.  Who hears, whose lease is      *)
(* over, which suspects an unanswered call has made, and when a call is made: that is taken from the trace.  What  *)
(* each script finds, answers and publishes, and who believes that it holds, must be what the specification says; *)
(* and a client may send what it sends.                                                                            *)
EXTENDS Headwaiter

VARIABLES rest,   \* the trace, as far as it is still to come
          heard   \* what each client may have been told, which of its tickets have held, and which of its holds have ended

TraceInit(seed, events) == w = Start /\ told = <<>> /\ heard = {} /\ rest = [seed |-> seed, events |-> events]

\* The world in which an event happens.
World(e) ==
  [w EXCEPT !.s.subs = e.subs, !.s.hold = {[h EXCEPT !.over = @ \/ e.over] : h \in @},
            !.s.mark = IF e.late /\ @ = "set" THEN "over" ELSE @,
            !.s.suspect = [c \in Clients |-> IF c \in e.due THEN "marked" ELSE @[c]],
            !.t = [t \in Tickets |-> IF t \in e.ids THEN [@[t] EXCEPT !.arr = e.at[t], !.tok = IF e.k = "renew" THEN e.tok ELSE @,
                                                                        !.st = IF @ = "held" THEN @ ELSE "waiting", !.knows = ~e.wish]
                                   ELSE @[t]],
            !.net = [c \in Clients |-> NoNet], !.j = [Start.j EXCEPT !.seen = w.j.seen, !.alone = w.j.alone], !.d = NoDoing]

\* What the server has of the lock.
Found(x) ==
  [hold |-> {<<h.id[1], h.tok, IF h.ph \in {"message", "reply"} THEN "granted" ELSE h.ph>> : h \in x.s.hold},
   queue |-> [i \in DOMAIN x.s.queue |-> <<x.s.queue[i].id[1], x.s.queue[i].arr>>],
   sus |-> {c \in Clients : x.s.suspect[c] # ""}, mark |-> x.s.mark # "", high |-> x.s.high, tok |-> x.s.tok]

\* What was published, to those who hear.
Sent(x) == UNION UNION {{IF m.k = "grant" THEN {<<c, "grant", g.id[1], g.tok>> : g \in m.g} ELSE {<<c, m.k, id[1], m.tok>> : id \in m.ids}
                   : m \in {x.net[c].p[i] : i \in DOMAIN x.net[c].p}} : c \in Clients}

Message(e) == [M(e.k, {<<t, 0>> : t \in e.ids}, e.how) EXCEPT !.arr = e.arr, !.tok = e.tok]

\* Whether a check has found a ticket granted, or has it granted, is not told apart.
Answer(x) ==
  LET r == x.d.reply IN
  [how |-> r.how, arr |-> r.arr, g |-> {<<g.id[1], g.tok>> : g \in r.g}, sus |-> r.sus, says |-> {<<s[1][1], IF s[2] = "missed" THEN "granted" ELSE s[2]>> : s \in r.says}]

Renewed(x, e) ==
  LET t == CHOOSE t \in e.ids : TRUE
      r == Renewal(x, t)
  IN [r.x EXCEPT !.d.reply = [M("renew", {}, IF r.ok THEN "renewed" ELSE "refused") EXCEPT
                                !.says = IF e.wish /\ r.x.t[t].knows THEN {<<<<t, 0>>, "wanted">>} ELSE {}]]

\* "none": the script came too late, or left it to another.
After(x, e) == IF e.k = "none" THEN x ELSE IF e.k = "renew" THEN Renewed(x, e) ELSE Run(x, e.c, Message(e), TRUE)

\* I1, I4: who believes that it holds does, and not when its lease is over.
Sound(x) == \A t \in Tickets : x.t[t].st = "held" => \E h \in x.s.hold : h.id = <<t, 0>> /\ h.tok = x.t[t].tok /\ ~h.over

\* What a client says of its tickets it was told: arrivals and tokens are the server's to give.  A ticket that has lapsed
\* has another number, and keeps its arrival.
Says(e) == {<<e.c, "arrival", e.at[t]>> : t \in {t \in DOMAIN e.at : e.at[t] # 0}}
           \cup (IF e.tok = 0 \/ e.how = "adopt" THEN {} ELSE {<<e.c, "token", e.tok>>})
Tells(e) == {<<e.c, "arrival", e.reply.arr>>} \cup {<<e.c, "token", g[2]>> : g \in e.reply.g}
            \cup {<<m[1], "token", m[4]>> : m \in {m \in e.sent : m[2] = "grant"}}

\* Sent since the client began or ended to hold: then it does not ask for what it has held, nor renew what has ended.
Timely(e) == e.since => \A t \in e.ids : CASE e.k \in {"ask", "check"} -> <<e.c, "held", t>> \notin heard
                                          [] e.k = "renew" -> <<e.c, "ended", e.tok>> \notin heard
                                          [] OTHER -> TRUE

Script(e) ==
  Says(e) \subseteq heard /\ Timely(e) /\ heard' = heard \cup Tells(e) /\
  \E x \in {World(e)} : \E y \in {After(x, e)} :
    /\ Found(x) = e.found
    /\ Sound(x)
    /\ e.k # "none" => Answer(y) = e.reply
    /\ Sent(y) = e.sent
    /\ w' = y /\ told' = y.d.log

\* A caller has the lease, or its context has ended.
Holds(e) == \E h \in w.s.hold :
              /\ h.tok = e.tok /\ Who(h.id) = e.c /\ ~h.over
              /\ w' = Hold([w EXCEPT !.t[h.id[1]].tok = e.tok, !.j.bad = "", !.d = NoDoing], h.id[1]) /\ told' = <<<<"holds", h.id, e.tok>>>>
              /\ heard' = heard \cup {<<e.c, "held", h.id[1]>>}
Ends1(e) == \E t \in Tickets :
              /\ w.t[t].st = "held" /\ w.t[t].tok = e.tok /\ ClientOf(t) = e.c
              /\ w' = [w EXCEPT !.t[t].st = "ended", !.t[t].ok = FALSE] /\ told' = <<<<"ends", <<t, 0>>>>>>
              /\ heard' = heard \cup {<<e.c, "ended", e.tok>>}

\* Each event is one step, or there is none.
TraceNext ==
  \/ /\ rest.events # <<>>
     /\ \E e \in {Head(rest.events)} : CASE e.k = "holds" -> Holds(e) [] e.k = "ends" -> Ends1(e) [] OTHER -> Script(e)
     /\ rest' = [rest EXCEPT !.events = Tail(@)]
  \/ rest.events = <<>> /\ UNCHANGED <<w, told, rest, heard>>
=============================================================================
