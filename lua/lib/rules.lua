-- lib/rules: what scripts write out in place, because a call or a table would cost time there, and must not differ. The
-- loader puts the text after the equals sign where a script has the name.

-- Keys outlive the last need of them by a minute. They are prolonged when less than three quarters of that are left, so
-- that not every script pays for it, and cut to a minute where they would live longer than so after the last need (I6).
-- @rule SPARE_US = 60000000
-- @rule LEAST_US = 45000000
-- @rule MOST_US = 75000000

-- No token is believed to be further ahead of the clock than a day.
-- @rule DAY_US = 86400000000

-- When a client was made, by the server's clock then. A time that is ahead of the clock is not believed, because nobody who
-- comes later could have his number counted.
-- @rule made_at(born, now) = (born <= now and born or 0)

-- For how long a limit is remembered that is not the number stated last.
-- @rule MONTH_US = 30 * DAY_US

-- For how long a suspect is remembered; and for how long at the least, where no ticket of before waits any more. That is longer
-- than it takes a client that lives and waits to look, where up to 9,600 wait, and so to learn that it is one.
-- @rule SUSPECT_US = 600000000
-- @rule SUSPECT_LEAST_US = 60000000

-- How long the history of a lock outlives the last entry.
-- @rule HISTORY_MS = '86400000'

-- The time that TIME tells, in µs.
-- @rule micros(t) = t[1] * 1000000 + t[2]

-- The same as text. To format the number takes three times as long.
-- @rule micros_text(t) = t[1] .. string.sub('00000' .. t[2], -6)

-- The lease of a ticket, and of a grant to it, in ms. From the front they are found in half the time.
-- @rule ticket_terms(ticket) = string.match(ticket, '^[^:]*:[^:]*:[^:]*:[^:]*:(%d+):(%d+)$')

-- When a lease ends, in µs. A hold that was taken at once has no fields until and phase before its first renewal: its
-- token is the time of the grant, and its lease is in its ticket.
-- @rule ends_at(till, token, lease) = (till and till + 0 or token + lease)

-- The owner of a lock whose last hold was not released, until the next grant or the end of the key: so an ask does not take it
-- in passing (fairlock/ask), but comes to hold.read, which finds how that hold ended. It is a ticket that rests, whose time is over.
-- @rule NOBODY = '-:0:z:1:0:0'

-- The default minimum token of a request that brings none: the time of its sending plus 3 ms. The not-after is 3 s after
-- the sending, by the lowest estimate of the server's clock. A client leaves the minimum token out if it is not above
-- that (I2); the 3 ms are there because its reading is late. If the clock has stepped back by more than a day since, the
-- default is a day after now; a minimum token that is given is ignored then (believed).
-- @rule sent_by(notafter, now) = math.min(notafter - 2997000, now + DAY_US)

-- The member of the holders that is no ticket. Redis keeps a sorted set with a member of more than 64 characters as a tree
-- from the first one on; in a list every change would go through all holders.
-- @rule GUARD = '-----------------------------------------------------------------'

-- A key of another version of the protocol is refused before the first write. A lock says so in the field version, which a key of
-- this one does not have. All else has a number in its first field here, and v, another version and a colon before it there: a
-- field that is not there costs as much as all that are.
-- @rule of_another(first) = (first and not tonumber(first))
-- @rule number_of(first) = string.match(first, '%d+')
-- @rule VERSION = '1'
-- @rule other_version(found) = 'headwaiter: this name is in use with version ' .. found .. ' of the protocol, and this client has version ' .. VERSION .. ': run one release of Headwaiter everywhere, and leave the name unused for a minute'

-- When a hold began, if its token is not the time of its grant.
-- @rule since_words(token, now) = token .. ':' .. now

-- The highest token that a client has seen, unless that is more than a day ahead of the clock: one that is forged would use
-- up the numbers that tokens can have.
-- @rule believed(floor, now) = (floor <= now + DAY_US and floor or 0)

-- The token of a new hold: one above the last, and above all that the client has seen; where the clock is ahead of both, the
-- time (I2).
-- @rule next_token(last, floor, now) = math.max(last, floor, now - 1) + 1

-- Until when a key with a token is needed: while the token is ahead of the clock, because tokens begin at the clock again
-- once the key is gone (I2).
-- @rule token_need(token, now) = math.min(token, now + DAY_US)

-- How much longer it is needed when nobody holds or waits.
-- @rule token_rest(token, now) = math.max(math.min(token - now, DAY_US), 0)

-- Until when the keys of a queue with this number of waiters are needed: twice the longest time between two of their checks.
-- @rule queue_need(waiting, now) = now + math.max(4000000, waiting * 10000)

-- Whether the holder has asked to be told when somebody waits, and nobody has queued since; idle is a client that only
-- keeps what it has for its next call.
-- @rule wants_word(phase) = (phase == 'wants' or phase == 'idle' or phase == 'final wants')

-- The words of one grant in the message that tells of it: the ticket, the time of the grant, how far ahead of that its token
-- is, and for how many ms it holds. After the last grant: the note of the holder before.
-- @rule grant_words(ticket, at, ahead, lasts) = ticket .. ' ' .. at .. ' ' .. ahead .. ' ' .. lasts
-- @rule grant_note(note) = (note and ' ~' .. note or '')
-- The same, unless the hold before was not released: then how that ended.
-- @rule grant_tail(told, note) = (told and ' ~!' .. told or note and ' ~' .. note or '')

-- The mode of an ask that has a limit, and how many may wait.
-- @rule bounded(text) = string.match(text, '^(%a+) (%d+)$')

-- How many µs a look counts that found a queue full, by the number of tickets; a second at the most. So looks cost about
-- a hundredth of the server's time.
-- @rule LOOKED_MOST_US = 1000000
-- @rule looked_for(tickets) = math.min(math.max(tickets * 500, 50000), LOOKED_MOST_US)

-- The result of such a look: how many tickets of dead clients it has seen, until when it counts, and how long the head
-- had waited by then. It counts as long as at least the limit of live tickets is left in the queue.
-- @rule look_words(looked) = string.match(looked or '', '^(%d+):(%d+):(%d+)$')
-- @rule look_counts(dead, till, now, size, least) = (dead and tonumber(till) > now and till - now <= LOOKED_MOST_US and size - dead >= (least))
