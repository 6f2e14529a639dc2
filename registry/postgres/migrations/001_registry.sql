-- A registry of rota. Migrate replaces the name of the schema.

-- The entries. No index contains a column that an update changes, so updates are HOT.
CREATE TABLE rota.kv (
	dir      text COLLATE "C" NOT NULL,
	name     text COLLATE "C" NOT NULL,
	value    bytea NOT NULL,
	created  bigint NOT NULL,
	modified bigint NOT NULL,
	written  timestamptz NOT NULL,
	owner    text COLLATE "C",
	txn      uuid NOT NULL,
	PRIMARY KEY (dir, name),
	CHECK (name ~ '^[A-Za-z0-9._~-]{1,128}$'),
	CHECK (dir ~ '^([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?$'),
	CHECK ((owner IS NOT NULL) = starts_with(name, '~'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);

CREATE INDEX kv_owner ON rota.kv (owner) WHERE owner IS NOT NULL;

-- The latest commits, with the names that each changed in a directory. The values are in kv. The greatest seq is that of the
-- last commit: it is part of the snapshot of a reader, unlike the value of a sequence.
CREATE TABLE rota.log (
	seq   bigint NOT NULL,
	dir   text COLLATE "C" NOT NULL,
	names text[] COLLATE "C" NOT NULL,
	PRIMARY KEY (seq, dir)
) WITH (autovacuum_vacuum_scale_factor = 0.2, autovacuum_vacuum_threshold = 2000);

-- The sessions, with deadlines in the time of state.lease. There is no index on deadline, so renewals are HOT.
CREATE TABLE rota.session (
	id       text COLLATE "C" PRIMARY KEY,
	ttl      bigint NOT NULL, -- in microseconds
	deadline bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE rota.state (
	one       boolean PRIMARY KEY DEFAULT true CHECK (one),
	lease     bigint NOT NULL,  -- the lease clock, in microseconds; see tick
	compacted bigint NOT NULL,  -- the log lacks commits up to this one
	started   timestamptz,      -- of the server that made the last commit
	quota     bigint,           -- the size of kv in bytes from which on it is full; null: none
	is_full   boolean NOT NULL
) WITH (fillfactor = 10);

INSERT INTO rota.log (seq, dir, names) VALUES (1, '', '{}');
INSERT INTO rota.state (lease, compacted, started, is_full) VALUES (0, 1, pg_postmaster_start_time(), false);

-- wall is the only use of the time of day. It is stored for people: no decision rests on it.
CREATE FUNCTION rota.wall() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';

-- last returns the number of the last commit in the snapshot.
CREATE FUNCTION rota.last() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN (SELECT l.seq FROM rota.log l ORDER BY l.seq DESC, l.dir DESC LIMIT 1);
END $$;

-- make_durable makes the transaction wait for the flush of its commit, and for synchronous standbys, whatever the role's default is.
CREATE FUNCTION rota.make_durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
END $$;

-- start_commit begins each function that commits. It orders commits by a lock, which is held until the commit is visible: a later
-- statement of the function sees all earlier commits, and no later one exists. It returns the number of the last commit.
--
-- The first commit of another server process, after a restart, a fail-over or a restore, leaves a gap for numbers that were given out
-- and then lost, makes all watchers list again, and gives each session its whole TTL, since renewals may have been lost too.
CREATE FUNCTION rota.start_commit() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	last    bigint;
	st      record;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'the isolation level is %, which judges conditions by the past: rota needs read committed',
			current_setting('transaction_isolation') USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'ALTER ROLE ' || quote_ident(current_user) || ' SET default_transaction_isolation = ''read committed''';
	END IF;
	PERFORM rota.make_durable();
	PERFORM set_config('lock_timeout', '4s', true);
	PERFORM pg_advisory_xact_lock(1919906913, 'rota.kv'::regclass::oid::integer);
	last := rota.last();
	SELECT s.started, s.lease INTO STRICT st FROM rota.state s;
	IF st.started IS DISTINCT FROM pg_postmaster_start_time() THEN
		last := last + 1000000;
		INSERT INTO rota.log (seq, dir, names) VALUES (last, '', '{}');
		DELETE FROM rota.log l WHERE l.seq < last;
		UPDATE rota.session s SET deadline = st.lease + s.ttl + 750000;
		UPDATE rota.state SET started = pg_postmaster_start_time(), compacted = last;
	END IF;
	RETURN last;
END $$;

-- notify_dirs wakes the watchers of directories when the transaction has committed. It is a hint: watchers also ask by themselves.
CREATE FUNCTION rota.notify_dirs(dirs text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	payload text;
BEGIN
	SELECT string_agg(DISTINCT '/' || d, ' ') INTO payload FROM unnest(dirs) d;
	IF payload IS NOT NULL THEN
		PERFORM pg_notify('rota.changes', CASE WHEN octet_length(payload) < 7900 THEN payload ELSE '*' END);
	END IF;
END $$;

-- commit applies transactions one after the other, each with a number of its own or not at all. Their items are in arrays, those of
-- one transaction beside one another: txns has the place of the transaction in ids. kinds are 1 absent, 2 at, 3 alive, 4 dead, 5 create,
-- 6 create owned, 7 set, 8 delete.
--
-- failed is 0 for a transaction that was applied, else the place of its first item that does not hold, -1 if a session that shall own a
-- key has ended, -2 if the store is full.
CREATE FUNCTION rota.commit(
	notify boolean, ids uuid[], txns integer[], kinds integer[], dirs text[], names text[], revs bigint[], sessions text[], vals bytea[]
) RETURNS TABLE (failed integer, seq bigint) LANGUAGE plpgsql AS $$
DECLARE
	last    bigint := rota.start_commit();
	is_full boolean := (SELECT s.is_full FROM rota.state s);
	n       integer := coalesce(cardinality(txns), 0);
	start   integer;
	i       integer := 1;
	holds   boolean;
	d       text[]; -- of the changes of a transaction
	c       text[];
	changed text[] := '{}'; -- directories
BEGIN
	FOR t IN 1 .. cardinality(ids) LOOP
		failed := 0;
		start := i;
		WHILE i <= n AND txns[i] = t LOOP
			IF failed = 0 THEN
				IF kinds[i] IN (3, 4) THEN
					holds := EXISTS (SELECT FROM rota.session s WHERE s.id = sessions[i]) = (kinds[i] = 3);
				ELSIF kinds[i] IN (1, 5, 6) THEN
					holds := NOT EXISTS (SELECT FROM rota.kv k WHERE k.dir = dirs[i] AND k.name = names[i]);
				ELSE
					holds := EXISTS (SELECT FROM rota.kv k WHERE k.dir = dirs[i] AND k.name = names[i] AND k.modified = revs[i]);
				END IF;
				IF kinds[i] = 6 AND NOT EXISTS (SELECT FROM rota.session s WHERE s.id = sessions[i]) THEN
					failed := -1;
				ELSIF NOT holds THEN
					failed := i - start + 1;
				ELSIF is_full AND kinds[i] IN (5, 6, 7) THEN
					failed := -2;
				END IF;
			END IF;
			i := i + 1;
		END LOOP;
		IF failed = 0 THEN
			d := '{}';
			c := '{}';
			FOR j IN start .. i - 1 LOOP
				CONTINUE WHEN kinds[j] < 5;
				IF d = '{}' THEN
					last := last + 1;
				END IF;
				IF kinds[j] = 7 THEN
					UPDATE rota.kv k SET value = vals[j], modified = last, written = rota.wall(), txn = ids[t]
						WHERE k.dir = dirs[j] AND k.name = names[j];
				ELSIF kinds[j] = 8 THEN
					DELETE FROM rota.kv k WHERE k.dir = dirs[j] AND k.name = names[j];
				ELSE
					INSERT INTO rota.kv (dir, name, value, created, modified, written, owner, txn)
						VALUES (dirs[j], names[j], vals[j], last, last, rota.wall(), CASE WHEN kinds[j] = 6 THEN sessions[j] END, ids[t]);
				END IF;
				d := d || dirs[j];
				c := c || names[j];
			END LOOP;
			IF d <> '{}' THEN
				INSERT INTO rota.log (seq, dir, names) SELECT last, u.dir, array_agg(u.name) FROM unnest(d, c) u (dir, name) GROUP BY u.dir;
				changed := changed || d;
			END IF;
		END IF;
		seq := last;
		RETURN NEXT;
	END LOOP;
	IF notify THEN
		PERFORM rota.notify_dirs(changed);
	END IF;
END $$;

-- open_session returns whether there was room for the session.
CREATE FUNCTION rota.open_session(id text, ttl bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM rota.make_durable();
	IF (SELECT s.is_full FROM rota.state s) THEN
		RETURN false;
	END IF;
	INSERT INTO rota.session (id, ttl, deadline) SELECT open_session.id, open_session.ttl, s.lease + open_session.ttl + 750000 FROM rota.state s;
	RETURN true;
END $$;

-- renew_session returns whether the session lives. It takes no lock but that of the row, so it never waits for commits. It has to be
-- durable: the owner relies on it.
CREATE FUNCTION rota.renew_session(id text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM rota.make_durable();
	UPDATE rota.session s SET deadline = greatest(s.deadline, (SELECT st.lease FROM rota.state st) + s.ttl + 750000)
		WHERE s.id = renew_session.id;
	RETURN FOUND;
END $$;

-- drop_owned deletes the keys of sessions that have ended, those of each session in a commit of its own. It returns the number of the last
-- commit. start_commit was called before.
CREATE FUNCTION rota.drop_owned(notify boolean, last bigint, ids text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	ended   text;
	d       text[];
	c       text[];
	changed text[] := '{}';
BEGIN
	FOREACH ended IN ARRAY ids LOOP
		last := last + 1;
		WITH gone AS (DELETE FROM rota.kv k WHERE k.owner = ended RETURNING k.dir, k.name)
			SELECT array_agg(g.dir), array_agg(g.name) INTO d, c FROM gone g;
		INSERT INTO rota.log (seq, dir, names) SELECT last, u.dir, array_agg(u.name) FROM unnest(d, c) u (dir, name) GROUP BY u.dir;
		IF NOT FOUND THEN
			INSERT INTO rota.log (seq, dir, names) VALUES (last, '', '{}');
		END IF;
		changed := changed || d;
	END LOOP;
	IF notify THEN
		PERFORM rota.notify_dirs(changed);
	END IF;
	RETURN last;
END $$;

-- end_session ends a session, with its keys.
CREATE FUNCTION rota.end_session(notify boolean, id text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	last bigint := rota.start_commit();
BEGIN
	DELETE FROM rota.session s WHERE s.id = end_session.id;
	IF FOUND THEN
		PERFORM rota.drop_owned(notify, last, ARRAY[end_session.id]);
	END IF;
END $$;

-- has_work returns whether reap has something to do.
CREATE FUNCTION rota.has_work() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
	st record;
BEGIN
	SELECT * INTO STRICT st FROM rota.state;
	RETURN st.started IS DISTINCT FROM pg_postmaster_start_time()
		OR EXISTS (SELECT FROM rota.session s WHERE s.deadline < st.lease)
		OR rota.last() - st.compacted > 22000
		OR st.is_full <> coalesce(pg_total_relation_size('rota.kv') >= st.quota, false);
END $$;

-- tick advances the lease clock by elapsed microseconds, if it still shows seen: the caller has measured the time since it saw that, by a clock that
-- is never set. So it is slower than real time, never faster, and it stands still while the store is down. A tick adds 750 ms at most, which
-- deadlines allow for, as a renewal between two ticks counts from the earlier one.
--
-- It returns the clock, and whether the caller is to call reap. Only the caller that advanced the clock is asked to.
CREATE FUNCTION rota.tick(seen bigint, elapsed bigint) RETURNS TABLE (lease bigint, work boolean) LANGUAGE plpgsql AS $$
BEGIN
	lease := (SELECT s.lease FROM rota.state s);
	work := false;
	IF lease = seen AND elapsed > 0 THEN
		UPDATE rota.state s SET lease = seen + least(elapsed, 750000) WHERE s.lease = seen RETURNING s.lease INTO lease;
		IF FOUND THEN
			work := rota.has_work();
		ELSE
			lease := (SELECT s.lease FROM rota.state s);
		END IF;
		PERFORM set_config('synchronous_commit', 'off', true); -- a lost tick makes the clock slower
	END IF;
	RETURN NEXT;
END $$;

-- reap ends sessions whose deadline has passed, shortens the log, and compares the size with the quota. Each part is bounded, so that others
-- do not wait for long. It returns whether there is more to do.
CREATE FUNCTION rota.reap(notify boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	last  bigint := rota.start_commit();
	st    record;
	ended text[];
	bound bigint;
BEGIN
	SELECT * INTO STRICT st FROM rota.state;
	WITH due AS (SELECT s.id FROM rota.session s WHERE s.deadline < st.lease ORDER BY s.id LIMIT 200),
		gone AS (DELETE FROM rota.session s USING due WHERE s.id = due.id AND s.deadline < st.lease RETURNING s.id)
		SELECT array_agg(g.id) INTO ended FROM gone g;
	IF ended IS NOT NULL THEN
		last := rota.drop_owned(notify, last, ended);
	END IF;
	IF last - st.compacted > 22000 THEN
		bound := least(last - 20000, st.compacted + 5000);
		DELETE FROM rota.log l WHERE l.seq >= st.compacted AND l.seq <= bound; -- not from the left end, where the index has dead entries
		UPDATE rota.state SET compacted = bound;
	END IF;
	UPDATE rota.state s SET is_full = NOT s.is_full WHERE s.is_full <> coalesce(pg_total_relation_size('rota.kv') >= s.quota, false);
	RETURN rota.has_work();
END $$;

-- check_primary refuses reads on a standby, to which a pooler may have moved the connection: they could go back in time.
CREATE FUNCTION rota.check_primary() RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF pg_is_in_recovery() THEN
		RAISE EXCEPTION 'the server is a standby' USING ERRCODE = 'read_only_sql_transaction';
	END IF;
END $$;

-- get returns the entry of a key, if there is one.
CREATE FUNCTION rota.get(dir text, name text)
RETURNS TABLE (value bytea, created bigint, modified bigint, written timestamptz, owner text, txn uuid) LANGUAGE plpgsql STABLE AS $$
BEGIN
	PERFORM rota.check_primary();
	RETURN QUERY SELECT k.value, k.created, k.modified, k.written, k.owner, k.txn FROM rota.kv k WHERE k.dir = get.dir AND k.name = get.name;
END $$;

-- list returns the entries of a directory, after a row without a name whose modified is the number of the last commit.
CREATE FUNCTION rota.list(dir text)
RETURNS TABLE (name text, value bytea, created bigint, modified bigint, owner text, txn uuid) LANGUAGE plpgsql STABLE AS $$
BEGIN
	PERFORM rota.check_primary();
	modified := rota.last();
	RETURN NEXT;
	RETURN QUERY SELECT k.name, k.value, k.created, k.modified, k.owner, k.txn FROM rota.kv k WHERE k.dir = list.dir ORDER BY k.name;
END $$;

-- changes returns, for each of the directories, what commits after a number have changed, with the last change of each name: the entry,
-- or none if it was deleted. place is that of the directory. The first row has place 0 and the number of the last commit as seq. A row
-- without a name means that the log lacks commits, or that the number is of another history.
CREATE FUNCTION rota.changes(dirs text[], afters bigint[])
RETURNS TABLE (place integer, seq bigint, name text, value bytea, created bigint, modified bigint, owner text, txn uuid) LANGUAGE plpgsql STABLE AS $$
DECLARE
	compacted bigint := (SELECT s.compacted FROM rota.state s);
	reached   bigint := rota.last();
BEGIN
	PERFORM rota.check_primary();
	place := 0;
	seq := reached;
	RETURN NEXT;
	FOR i IN 1 .. cardinality(dirs) LOOP
		IF afters[i] < compacted OR afters[i] > reached THEN
			place := i;
			seq := reached;
			RETURN NEXT;
		ELSIF afters[i] < reached THEN
			RETURN QUERY
				SELECT i, c.seq, c.name, k.value, k.created, k.modified, k.owner, k.txn
				FROM (
					SELECT u.name, max(l.seq) AS seq FROM rota.log l, unnest(l.names) u (name)
					WHERE l.seq > afters[i] AND l.dir = dirs[i] GROUP BY u.name
				) c LEFT JOIN rota.kv k ON k.dir = dirs[i] AND k.name = c.name
				ORDER BY c.seq;
		END IF;
	END LOOP;
END $$;
