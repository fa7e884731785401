-------------------------------- MODULE Ways --------------------------------
(* Ways through scopes of Headwaiter.tla that are too wide to be gone through whole: in each step that is done    *)
(* which the way says, and whatever may follow from it.                                                          *)
EXTENDS Headwaiter

CONSTANT Way   \* the slip that it shows
VARIABLE at    \* how far it is gone

\* A late ask of B2 gives it a later arrival than its own.
LateArrival == <<
  <<"asks", <<11, 0>>>>, <<"asks", <<21, 0>>>>, <<"asks", <<22, 0>>>>, <<"cut", 2, TRUE>>, <<"asks", <<31, 0>>>>, <<"releases", <<11, 0>>>>,
  <<"asks", <<12, 0>>>>, <<"run", "ask", {<<22, 0>>}, "wait", FALSE>>, <<"checks", 2>>, <<"releases", <<31, 0>>>>>>

\* A check of B that runs late clears a mark that is newer than the echo it goes by, and B is stopped.
Stale == <<
  <<"asks", <<11, 0>>>>, <<"asks", <<21, 0>>>>, <<"releases", <<11, 0>>>>, <<"lease ends", <<21, 0>>>>, <<"asks", <<12, 0>>>>,
  <<"at last", "grant", 2, "p">>, <<"cut", 2, TRUE>>, <<"checks", 2>>, <<"stopped", 2>>, <<"releases", <<12, 0>>>>, <<"lease ends", <<21, 1>>>>,
  <<"asks", <<13, 0>>>>, <<"run", "check", {<<21, 1>>}, "proven", FALSE>>, <<"releases", <<13, 0>>>>>>

TheWay == IF Way = "StaleProof" THEN Stale ELSE LateArrival

WayInit == Init /\ at = 1
WayNext == /\ at <= Len(TheWay) /\ at' = at + 1
           /\ \E s \in {o \in Steps : o.told # <<>> /\ o.told[1] = TheWay[at]} : w' = s.w /\ told' = s.told
WayView == <<w, at>>
=============================================================================
