-- What sqllock needs in a database. It may be run again, also to bring an older version up to date; give it to one
-- connection at a time, in the schema that the search_path of those who lock begins with. Who locks needs USAGE of the
-- sequences, SELECT, INSERT, UPDATE and DELETE of the table, and EXECUTE of the functions, which everybody has.

-- Fencing tokens, of session locks and of leases. They rise, with gaps.
CREATE SEQUENCE IF NOT EXISTS headwaiter_token AS bigint CACHE 1;
-- The order in which calls came.
CREATE SEQUENCE IF NOT EXISTS headwaiter_arrival AS bigint CACHE 1;

-- A row for each call that waits or holds. Nothing is left of it when it has ended.
CREATE TABLE IF NOT EXISTS headwaiter_ticket (
	ticket  text COLLATE "C" PRIMARY KEY,
	name    text COLLATE "C" NOT NULL,
	client  text COLLATE "C" NOT NULL, -- where its grant is told: a channel
	arrival bigint NOT NULL,
	lease   interval NOT NULL,         -- how long it holds unless renewed
	until   timestamptz NOT NULL,      -- waiting: when it is taken for dead; holding: the end of the lease
	token   bigint,                    -- null while it waits
	claimed boolean NOT NULL DEFAULT false -- whether the client has shown that it knows of its grant
);
CREATE INDEX IF NOT EXISTS headwaiter_ticket_order ON headwaiter_ticket (name, arrival);
-- One holds at a time, whatever else goes wrong.
CREATE UNIQUE INDEX IF NOT EXISTS headwaiter_ticket_holder ON headwaiter_ticket (name) WHERE token IS NOT NULL;

-- Rows come and go: what has gone is cleared away soon, and a renewal finds room beside its row.
ALTER TABLE headwaiter_ticket SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0);

-- headwaiter_version: what Dial asks for.
CREATE OR REPLACE FUNCTION headwaiter_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';

-- headwaiter_lock, headwaiter_try_lock: the advisory lock of a session, and then a token. CASE is evaluated in its order.
-- The answer of the second is null if somebody else has the lock. Neither reads a table, so STABLE changes nothing but
-- that Postgres makes no snapshot for them, as long as nobody calls them within another query.
CREATE OR REPLACE FUNCTION headwaiter_lock(p_key bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN CASE WHEN pg_advisory_lock(p_key) IS NOT NULL THEN nextval('headwaiter_token') END;
END $$;

CREATE OR REPLACE FUNCTION headwaiter_try_lock(p_key bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN CASE WHEN pg_try_advisory_lock(p_key) THEN nextval('headwaiter_token') END;
END $$;

-- headwaiter_enter: begin to work on a name, alone, until the end of the transaction. The time it answers is that of
-- the server, read once for all that follows. Each statement after it must see what was committed before it.
CREATE OR REPLACE FUNCTION headwaiter_enter(p_name text) RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'sqllock works at READ COMMITTED alone'
			USING HINT = 'Set default_transaction_isolation of the user or the connection to read committed.';
	END IF;
	PERFORM pg_advisory_xact_lock(1751474532, hashtext(p_name));
	RETURN clock_timestamp();
END $$;

DROP FUNCTION IF EXISTS headwaiter_serve(text, timestamptz, interval); -- Of before.

-- headwaiter_serve: take out what is over, and if nobody holds then, grant to the first in the queue that is alive.
-- p_free: the caller has just ended the hold, so there is none to look for. The answer says whether it did. The grant is
-- short, since it is not known whether its client still lives: the first renewal makes it a lease.
CREATE OR REPLACE FUNCTION headwaiter_serve(p_name text, p_now timestamptz, p_grant interval, p_free boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	holder headwaiter_ticket;
	head   headwaiter_ticket;
BEGIN
	WHILE NOT p_free LOOP
		SELECT * INTO holder FROM headwaiter_ticket WHERE name = p_name AND token IS NOT NULL;
		EXIT WHEN NOT FOUND;
		IF holder.until > p_now THEN
			RETURN false;
		END IF;
		-- A renewal may come first: then the condition is false, and the next look finds the hold as it is.
		DELETE FROM headwaiter_ticket t WHERE t.ticket = holder.ticket AND t.token IS NOT NULL AND t.until <= p_now;
		IF FOUND AND NOT holder.claimed THEN
			-- Its client let a grant lapse: what else it has here comes back with its arrival, if it lives.
			DELETE FROM headwaiter_ticket t WHERE t.name = p_name AND t.client = holder.client AND t.token IS NULL;
		END IF;
	END LOOP;
	LOOP
		-- Whatever row somebody else has locked, holds up nobody.
		SELECT * INTO head FROM headwaiter_ticket t
			WHERE t.name = p_name AND t.token IS NULL ORDER BY t.arrival LIMIT 1 FOR UPDATE SKIP LOCKED;
		IF NOT FOUND THEN
			RETURN false;
		END IF;
		EXIT WHEN head.until > p_now;
		-- It has died. Those who died behind the next that is alive can wait: to look for them would read the whole queue.
		DELETE FROM headwaiter_ticket WHERE ticket IN (
			SELECT t.ticket FROM headwaiter_ticket t
			WHERE t.name = p_name AND t.token IS NULL AND t.until <= p_now AND t.arrival < coalesce(
				(SELECT min(alive.arrival) FROM headwaiter_ticket alive
					WHERE alive.name = p_name AND alive.token IS NULL AND alive.until > p_now
						AND alive.arrival > head.arrival), 9223372036854775807)
			ORDER BY t.arrival LIMIT 1000 FOR UPDATE SKIP LOCKED);
	END LOOP;
	UPDATE headwaiter_ticket t
		SET token = nextval('headwaiter_token'), until = p_now + least(t.lease, p_grant), claimed = false
		WHERE t.ticket = head.ticket RETURNING * INTO head;
	PERFORM pg_notify(head.client, format('grant %s %s %s %s %s', head.ticket, head.token,
		(extract(epoch FROM p_now) * 1000000)::bigint, (extract(epoch FROM head.until) * 1000000)::bigint, p_name));
	RETURN true;
END $$;

-- headwaiter_look: serve a name, for somebody who has handed on and wants to see that it was taken.
CREATE OR REPLACE FUNCTION headwaiter_look(p_name text, p_grant interval) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	RETURN headwaiter_serve(p_name, headwaiter_enter(p_name), p_grant, false);
END $$;

-- headwaiter_ask: lock, try, or look. A ticket that is asked for again gets the same answer, or a newer one; one that
-- was dropped comes back to its arrival. place is 1 for the first in the queue, and 20 at most.
CREATE OR REPLACE FUNCTION headwaiter_ask(
	p_name text, p_ticket text, p_client text, p_arrival bigint, p_wait boolean,
	p_lease interval, p_window interval, p_grant interval,
	OUT o_token bigint, OUT o_arrival bigint, OUT o_place integer, OUT o_now bigint, OUT o_until bigint
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	moment timestamptz := headwaiter_enter(p_name);
	own    headwaiter_ticket;
	holder text;
	ends   timestamptz;
BEGIN
	o_now := (extract(epoch FROM moment) * 1000000)::bigint;
	SELECT ticket, until INTO holder, ends FROM headwaiter_ticket WHERE name = p_name AND token IS NOT NULL;
	IF p_arrival IS NOT NULL THEN
		-- Whoever waits is alive, whoever is served first.
		INSERT INTO headwaiter_ticket VALUES (p_ticket, p_name, p_client, p_arrival, p_lease, moment + p_window)
			ON CONFLICT (ticket) DO UPDATE SET until = excluded.until WHERE headwaiter_ticket.token IS NULL;
	ELSIF ends > moment AND holder <> p_ticket THEN
		-- Most often somebody else holds: then this is all.
		IF NOT p_wait THEN
			RETURN;
		END IF;
		INSERT INTO headwaiter_ticket
			VALUES (p_ticket, p_name, p_client, nextval('headwaiter_arrival'), p_lease, moment + p_window)
			ON CONFLICT (ticket) DO NOTHING RETURNING * INTO own;
	ELSIF ends IS NULL THEN
		-- Or nobody holds, and nobody waits.
		INSERT INTO headwaiter_ticket
			SELECT p_ticket, p_name, p_client, nextval('headwaiter_arrival'), p_lease, moment + p_lease,
				nextval('headwaiter_token'), true
			WHERE NOT EXISTS (SELECT FROM headwaiter_ticket WHERE name = p_name)
			RETURNING * INTO own;
	END IF;
	IF own.ticket IS NULL THEN
		PERFORM headwaiter_serve(p_name, moment, p_grant, false);
		SELECT * INTO own FROM headwaiter_ticket WHERE ticket = p_ticket;
		SELECT until INTO ends FROM headwaiter_ticket WHERE name = p_name AND token IS NOT NULL;
	END IF;
	IF own.ticket IS NULL THEN
		IF NOT EXISTS (SELECT FROM headwaiter_ticket WHERE name = p_name) THEN
			own := ROW(p_ticket, p_name, p_client, coalesce(p_arrival, nextval('headwaiter_arrival')), p_lease,
				moment + p_lease, nextval('headwaiter_token'), true);
		ELSIF p_wait THEN
			own := ROW(p_ticket, p_name, p_client, coalesce(p_arrival, nextval('headwaiter_arrival')), p_lease,
				moment + p_window, NULL, false);
		ELSE
			RETURN; -- Busy.
		END IF;
		INSERT INTO headwaiter_ticket SELECT own.*;
	END IF;
	o_token := own.token;
	o_arrival := own.arrival;
	IF own.token IS NOT NULL THEN
		o_until := (extract(epoch FROM own.until) * 1000000)::bigint;
		RETURN;
	END IF;
	o_until := (extract(epoch FROM coalesce(ends, moment)) * 1000000)::bigint;
	SELECT count(*) + 1 INTO o_place FROM (SELECT FROM headwaiter_ticket
		WHERE name = p_name AND token IS NULL AND arrival < own.arrival LIMIT 19) ahead;
END $$;

-- headwaiter_end: release, leave, give back. o_was: 0 there was no such ticket, 1 it waited, 2 it held, 3 it had held.
-- o_granted: the next has it. p_token, if not null: only if it holds by this token. p_force: tell its client that somebody else did it.
CREATE OR REPLACE FUNCTION headwaiter_end(
	p_name text, p_ticket text, p_token bigint, p_grant interval, p_force boolean,
	OUT o_was integer, OUT o_granted boolean
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	moment timestamptz := headwaiter_enter(p_name);
	gone   headwaiter_ticket;
BEGIN
	DELETE FROM headwaiter_ticket t WHERE t.name = p_name AND t.ticket = p_ticket
		AND (p_token IS NULL OR t.token = p_token) RETURNING * INTO gone;
	o_was := CASE WHEN gone.ticket IS NULL THEN 0 WHEN gone.token IS NULL THEN 1 WHEN gone.until > moment THEN 2 ELSE 3 END;
	IF p_force AND gone.token IS NOT NULL THEN
		PERFORM pg_notify(gone.client, format('forced %s %s 0 0 %s', gone.ticket, gone.token, p_name));
	END IF;
	o_granted := headwaiter_serve(p_name, moment, p_grant, gone.token IS NOT NULL);
END $$;
