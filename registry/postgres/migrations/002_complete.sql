-- Ends of runs in transactions of users.
--
-- The role of a program that calls postgres.CompleteTx in transactions of its own needs these rights:
--
--   GRANT USAGE ON SCHEMA rota TO app;
--   GRANT SELECT (id, lease) ON rota.state TO app;
--   GRANT SELECT, INSERT, UPDATE ON rota.gate TO app;
--   GRANT INSERT ON rota.ended TO app;

-- id identifies the registry, so that a transaction on another database is refused. keep_ends is how long gates and ends are kept.
ALTER TABLE rota.state
	ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid(),
	ADD COLUMN keep_ends interval NOT NULL DEFAULT '30 days' CHECK (keep_ends >= '1 hour');

-- The gates of shards. A transaction that ends a run holds the row of its shard until it is committed.
CREATE TABLE rota.gate (
	shard      text COLLATE "C" PRIMARY KEY,
	fence      bigint NOT NULL,  -- no run with a smaller one may end here
	work       text COLLATE "C", -- the last that was ended; null: none
	checkpoint bytea,            -- of that end
	used       bigint NOT NULL   -- in the time of state.lease
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);

-- The work that was ended here.
CREATE TABLE rota.ended (
	work text COLLATE "C" PRIMARY KEY,
	at   bigint NOT NULL -- in the time of state.lease
);

CREATE INDEX ended_at ON rota.ended (at);

-- complete_run records the end of a run in the transaction of a user. It locks the gate of the shard, and nothing that another shard needs. The errors
-- make the transaction fail, so that it cannot be committed without the end.
CREATE FUNCTION rota.complete_run(id uuid, shard text, work text, fence bigint, checkpoint bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	st record;
BEGIN
	SELECT s.id, s.lease INTO STRICT st FROM rota.state s;
	IF st.id <> complete_run.id THEN
		RAISE EXCEPTION 'the transaction is on database % whose registry is not that of the run', current_database() USING ERRCODE = 'RT003';
	END IF;
	INSERT INTO rota.gate AS g (shard, fence, work, checkpoint, used)
		VALUES (complete_run.shard, complete_run.fence, complete_run.work, complete_run.checkpoint, st.lease)
		ON CONFLICT ON CONSTRAINT gate_pkey DO UPDATE
		SET fence = excluded.fence, work = excluded.work, checkpoint = excluded.checkpoint, used = excluded.used
		WHERE g.fence <= excluded.fence;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'a run of % with a greater fence than % has begun', complete_run.shard, complete_run.fence USING ERRCODE = 'RT001';
	END IF;
	INSERT INTO rota.ended (work, at) VALUES (complete_run.work, st.lease) ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the work % has been ended', complete_run.work USING ERRCODE = 'RT002';
	END IF;
END $$;

-- fence_runs raises the gates of shards, unless the work has been ended, and returns whether it has. It waits for no transaction of a user: it returns
-- for which shards there is one.
CREATE FUNCTION rota.fence_runs(shards text[], works text[], fences bigint[])
RETURNS TABLE (open boolean, ended boolean, checkpoint bytea) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM rota.check_primary();
	IF current_setting('transaction_isolation') <> 'read committed' THEN -- it has to see what was committed while it waited for a row
		RAISE EXCEPTION 'the isolation level is %: rota needs read committed', current_setting('transaction_isolation')
			USING ERRCODE = 'object_not_in_prerequisite_state';
	END IF;
	PERFORM set_config('lock_timeout', '1ms', true);
	FOR i IN 1 .. coalesce(cardinality(shards), 0) LOOP
		open := false;
		ended := EXISTS (SELECT FROM rota.ended e WHERE e.work = works[i]);
		IF NOT ended THEN
			BEGIN
				INSERT INTO rota.gate AS g (shard, fence, used) SELECT shards[i], fences[i], s.lease FROM rota.state s
					ON CONFLICT ON CONSTRAINT gate_pkey DO UPDATE SET fence = greatest(g.fence, excluded.fence), used = excluded.used;
			EXCEPTION WHEN lock_not_available THEN
				open := true;
			END;
			ended := EXISTS (SELECT FROM rota.ended e WHERE e.work = works[i]);
		END IF;
		checkpoint := (SELECT g.checkpoint FROM rota.gate g WHERE ended AND g.shard = shards[i] AND g.work = works[i]);
		RETURN NEXT;
	END LOOP;
END $$;

-- prune_ends deletes ends and gates that are older than state.keep_ends, a bounded number of each: of the gates, it looks at some after a shard. It
-- returns the last of these, or '' if there are no more, and whether there may be more ends to delete. It takes no lock that others wait for.
CREATE FUNCTION rota.prune_ends(after text) RETURNS TABLE (next text, more boolean) LANGUAGE plpgsql AS $$
DECLARE
	bound   bigint := (SELECT s.lease - (extract(epoch FROM s.keep_ends) * 1000000)::bigint FROM rota.state s);
	deleted bigint;
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true); -- what a crash takes back is deleted again
	DELETE FROM rota.ended e WHERE e.work IN (SELECT o.work FROM rota.ended o WHERE o.at < bound ORDER BY o.at LIMIT 1000);
	GET DIAGNOSTICS deleted = ROW_COUNT;
	more := deleted = 1000;
	SELECT coalesce(max(p.shard), ''), count(*) INTO next, deleted
		FROM (SELECT g.shard FROM rota.gate g WHERE g.shard > after ORDER BY g.shard LIMIT 1000) p;
	DELETE FROM rota.gate g WHERE g.shard IN (
		SELECT o.shard FROM rota.gate o WHERE o.shard > after AND o.shard <= next AND o.used < bound ORDER BY o.shard FOR UPDATE SKIP LOCKED);
	IF deleted < 1000 THEN
		next := '';
	END IF;
	RETURN NEXT;
END $$;
