-- The store of package sqlstore. Create executes this in the schema that search_path names.

-- The entries.
CREATE TABLE kv (
	dir      text COLLATE "C" NOT NULL,
	name     text COLLATE "C" NOT NULL,
	value    bytea NOT NULL,
	created  bigint NOT NULL,
	modified bigint NOT NULL,
	owner    text COLLATE "C" NOT NULL, -- the session of an owned key; empty for others
	PRIMARY KEY (dir, name)
);

CREATE INDEX kv_owner ON kv (owner) WHERE owner <> '';

-- The latest commits with the names that each changed. The greatest seq is the number of the last commit. It is never deleted, and it
-- is part of a reader's snapshot, unlike a sequence. Numbers have no gaps, so a watcher sees whether commits are missing.
CREATE TABLE log (
	seq  bigint NOT NULL,
	dir  text COLLATE "C" NOT NULL,
	name text COLLATE "C" NOT NULL,
	PRIMARY KEY (seq, dir, name)
);

INSERT INTO log VALUES (1, '', '');

-- The live sessions, with deadlines in the time of state.lease.
CREATE TABLE session (
	id       text COLLATE "C" PRIMARY KEY,
	ttl      bigint NOT NULL, -- in microseconds
	deadline bigint NOT NULL
);

-- The lease clock, in microseconds. Only keepTime in session.go advances it.
CREATE TABLE state (lease bigint NOT NULL);

INSERT INTO state VALUES (0);

-- lock_commits orders commits: it waits until every earlier one is visible, and holds later ones up until this one is. The function that calls it
-- reads the state of the store in a later statement, which at READ COMMITTED has a newer snapshot.
CREATE FUNCTION lock_commits() RETURNS void LANGUAGE sql AS $$
	SELECT pg_advisory_xact_lock(hashtext('rota'), 'log'::regclass::oid::integer)
$$;

-- commit applies a transaction whose items are in arrays, conditions first. It returns the number of the commit, or of the last commit
-- if there is no operation. If item n does not hold, it changes nothing and returns -n; if a session that shall own a key has ended, 0.
CREATE FUNCTION commit(kinds text[], dirs text[], names text[], revs bigint[], sessions text[], vals bytea[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	last  bigint; -- the number of the last commit
	i     record;
	rev   bigint;  -- of the key of an item; null if there is none
	alive boolean; -- its session
	holds boolean;
BEGIN
	PERFORM lock_commits();
	last := (SELECT max(seq) FROM log);
	FOR i IN SELECT * FROM unnest(kinds, dirs, names, revs, sessions) WITH ORDINALITY AS u (kind, dir, name, rev, session, place) LOOP
		rev := (SELECT k.modified FROM kv k WHERE k.dir = i.dir AND k.name = i.name);
		alive := EXISTS (SELECT FROM session s WHERE s.id = i.session);
		IF i.kind = 'create owned' AND NOT alive THEN
			RETURN 0;
		END IF;
		holds := CASE
			WHEN i.kind = 'alive' THEN alive
			WHEN i.kind = 'dead' THEN NOT alive
			WHEN i.kind IN ('at', 'set', 'delete') THEN coalesce(rev = i.rev, false)
			ELSE rev IS NULL -- absent, create, create owned
		END;
		IF NOT holds THEN
			RETURN -i.place;
		END IF;
	END LOOP;
	FOR i IN SELECT * FROM unnest(kinds, dirs, names, sessions, vals) AS u (kind, dir, name, session, value) LOOP
		CASE i.kind
			WHEN 'create' THEN INSERT INTO kv VALUES (i.dir, i.name, i.value, last + 1, last + 1, '');
			WHEN 'create owned' THEN INSERT INTO kv VALUES (i.dir, i.name, i.value, last + 1, last + 1, i.session);
			WHEN 'set' THEN UPDATE kv k SET value = i.value, modified = last + 1 WHERE k.dir = i.dir AND k.name = i.name;
			WHEN 'delete' THEN DELETE FROM kv k WHERE k.dir = i.dir AND k.name = i.name;
			ELSE CONTINUE; -- a condition
		END CASE;
		INSERT INTO log VALUES (last + 1, i.dir, i.name);
	END LOOP;
	RETURN (SELECT max(seq) FROM log);
END $$;

-- end_sessions ends a session, or, if one is null, those whose deadline has passed, and deletes their keys in the same commit.
CREATE FUNCTION end_sessions(one text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lock_commits();
	WITH ended AS (
		DELETE FROM session s WHERE s.id = one OR one IS NULL AND s.deadline < (SELECT lease FROM state) RETURNING s.id
	), deleted AS (
		DELETE FROM kv k USING ended e WHERE k.owner = e.id RETURNING k.dir, k.name
	)
	INSERT INTO log SELECT (SELECT max(seq) + 1 FROM log), d.dir, d.name FROM deleted d;
END $$;
