-- Records that are created by transactions of users.
--
-- The role of a program that calls operator.TriggerIn or DefineIn needs these rights:
--
--   GRANT USAGE ON SCHEMA rota TO app;
--   GRANT SELECT (id) ON rota.state TO app;
--   GRANT SELECT (place), INSERT (dir, value), UPDATE (place) ON rota.post TO app;

-- Records to be created by reap, which deletes them here. place orders them. What kv would refuse is refused here: reap fails as a whole.
CREATE TABLE rota.post (
	place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	dir   text COLLATE "C" NOT NULL,
	value bytea NOT NULL,
	CHECK (dir ~ '^([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?$' AND octet_length(dir) <= 1024),
	CHECK (octet_length(value) <= 131072)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- reap uses the table from this step on: roles have the rights to it that they have to kv.
DO $$
DECLARE
	g record;
BEGIN
	FOR g IN SELECT a.grantee::regrole AS role, a.privilege_type AS kind FROM pg_class c, aclexplode(c.relacl) a
		WHERE c.oid = 'rota.kv'::regclass AND a.grantee NOT IN (0, c.relowner) LOOP
		EXECUTE format('GRANT %s ON rota.post TO %s', g.kind, g.role);
	END LOOP;
END $$;

-- place_post draws the place of a row again when its transaction commits, under a lock that is held until the commit is visible: so places are in
-- the order of the commits, and no row appears before one that reap has seen. The lock is another than that of commits of the registry.
-- statement_timeout does not bound a COMMIT.
CREATE FUNCTION rota.place_post() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('lock_timeout') = '0' THEN
		PERFORM set_config('lock_timeout', '4s', true);
	END IF;
	PERFORM pg_advisory_xact_lock(1919906913, 'rota.post'::regclass::oid::integer);
	UPDATE rota.post SET place = DEFAULT WHERE place = NEW.place;
	RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER place AFTER INSERT ON rota.post
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rota.place_post();

-- post has a record created in dir when the transaction of a user has committed.
CREATE FUNCTION rota.post(id uuid, dir text, value bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF post.id <> (SELECT s.id FROM rota.state s) THEN
		RAISE EXCEPTION 'the transaction is on database % whose registry is not that of the operator', current_database() USING ERRCODE = 'RT003';
	END IF;
	INSERT INTO rota.post (dir, value) VALUES (post.dir, post.value);
END $$;

-- create_posted creates a bounded number of the records, all in one commit, whose number begins their names: no sequence that was set back can make
-- a name twice. It returns the number of the last commit. start_commit was called
-- before, so a row is taken once.
CREATE FUNCTION rota.create_posted(notify boolean, last bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	d text[];
	c text[];
BEGIN
	last := last + 1;
	WITH taken AS (DELETE FROM rota.post p WHERE p.place IN (SELECT o.place FROM rota.post o ORDER BY o.place LIMIT 200) RETURNING p.*),
		ordered AS (SELECT t.dir, t.value, row_number() OVER (ORDER BY t.place) AS place FROM taken t),
		made AS (
			INSERT INTO rota.kv (dir, name, value, created, modified, written, txn)
			SELECT o.dir, lpad(last::text, 19, '0') || '-' || lpad(o.place::text, 3, '0'), o.value, last, last, rota.wall(), gen_random_uuid() FROM ordered o
			RETURNING kv.dir, kv.name
		)
		SELECT array_agg(m.dir), array_agg(m.name) INTO d, c FROM made m;
	IF d IS NULL THEN
		RETURN last - 1;
	END IF;
	INSERT INTO rota.log (seq, dir, names) SELECT last, u.dir, array_agg(u.name) FROM unnest(d, c) u (dir, name) GROUP BY u.dir;
	IF notify THEN
		PERFORM rota.notify_dirs(d);
	END IF;
	RETURN last;
END $$;

-- has_work returns whether reap has something to do.
CREATE OR REPLACE FUNCTION rota.has_work() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
	st record;
BEGIN
	SELECT * INTO STRICT st FROM rota.state;
	RETURN st.started IS DISTINCT FROM pg_postmaster_start_time()
		OR EXISTS (SELECT FROM rota.session s WHERE s.deadline < st.lease)
		OR rota.last() - st.compacted > 22000
		OR st.is_full <> coalesce(pg_total_relation_size('rota.kv') >= st.quota, false)
		OR NOT st.is_full AND EXISTS (SELECT FROM rota.post);
END $$;

-- reap also creates the records of transactions of users.
CREATE OR REPLACE FUNCTION rota.reap(notify boolean) RETURNS boolean LANGUAGE plpgsql AS $$
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
	IF NOT st.is_full THEN
		last := rota.create_posted(notify, last);
	END IF;
	IF last - st.compacted > 22000 THEN
		bound := least(last - 20000, st.compacted + 5000);
		DELETE FROM rota.log l WHERE l.seq >= st.compacted AND l.seq <= bound; -- not from the left end, where the index has dead entries
		UPDATE rota.state SET compacted = bound;
	END IF;
	UPDATE rota.state s SET is_full = NOT s.is_full WHERE s.is_full <> coalesce(pg_total_relation_size('rota.kv') >= s.quota, false);
	RETURN rota.has_work();
END $$;
