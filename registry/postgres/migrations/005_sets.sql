-- commit judges and applies all items of a transaction by one statement for each kind of change: of 50 items each, three times as many
-- transactions a second as with a statement for each item.
--
-- A connection makes its plans once, for any number of items, and keeps them until the tables are analyzed: they must look each item up in an
-- index, whatever size the tables had then. EXISTS in an item may become a hash table of all keys or sessions, and the join of a change to the
-- items may begin with kv if that had one row or none. A subquery that returns a value is executed for each item, and a row by its place is
-- cheaper than any other start; no row moves between finding it and changing it, as the lock of commits is held.
-- The time of day is stored for people: no decision rests on it.
CREATE OR REPLACE FUNCTION rota.commit(
	notify boolean, ids uuid[], txns integer[], kinds integer[], dirs text[], names text[], revs bigint[], sessions text[], vals bytea[]
) RETURNS TABLE (failed integer, seq bigint) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off
AS $$
DECLARE
	last        bigint := rota.start_commit();
	before      bigint := last;
	is_full     boolean := (SELECT s.is_full FROM rota.state s);
	n           integer := coalesce(cardinality(txns), 0);
	start       integer;
	stop        integer := 0;
	these_kinds integer[]; -- of the items of a transaction
	these_dirs  text[];
	these_names text[];
BEGIN
	FOR t IN 1 .. cardinality(ids) LOOP
		start := stop + 1;
		WHILE stop < n AND txns[stop + 1] = t LOOP
			stop := stop + 1;
		END LOOP;
		these_kinds := kinds[start:stop];
		these_dirs := dirs[start:stop];
		these_names := names[start:stop];
		failed := coalesce((
			SELECT CASE WHEN j.ended THEN -1 WHEN NOT j.holds THEN j.place ELSE -2 END FROM (
				SELECT i.kind, i.place,
					i.kind = 6 AND (SELECT s.id FROM rota.session s WHERE s.id = i.session) IS NULL AS ended,
					CASE
						WHEN i.kind IN (3, 4) THEN ((SELECT s.id FROM rota.session s WHERE s.id = i.session) IS NOT NULL) = (i.kind = 3)
						WHEN i.kind IN (1, 5, 6) THEN (SELECT k.modified FROM rota.kv k WHERE k.dir = i.dir AND k.name = i.name) IS NULL
						ELSE (SELECT k.modified FROM rota.kv k WHERE k.dir = i.dir AND k.name = i.name) IS NOT DISTINCT FROM i.rev
					END AS holds
				FROM unnest(these_kinds, these_dirs, these_names, revs[start:stop], sessions[start:stop])
					WITH ORDINALITY i (kind, dir, name, rev, session, place)
			) j
			WHERE j.ended OR NOT j.holds OR is_full AND j.kind IN (5, 6, 7)
			ORDER BY j.place LIMIT 1), 0);
		IF failed = 0 AND 5 <= ANY (these_kinds) THEN
			last := last + 1;
			IF 7 = ANY (these_kinds) THEN
				UPDATE rota.kv k SET value = i.val, modified = last, written = clock_timestamp(), txn = ids[t]
					FROM unnest(these_kinds, these_dirs, these_names, vals[start:stop]) i (kind, dir, name, val)
					WHERE i.kind = 7 AND k.ctid = (SELECT o.ctid FROM rota.kv o WHERE o.dir = i.dir AND o.name = i.name);
			END IF;
			IF 8 = ANY (these_kinds) THEN
				DELETE FROM rota.kv k USING unnest(these_kinds, these_dirs, these_names) i (kind, dir, name)
					WHERE i.kind = 8 AND k.ctid = (SELECT o.ctid FROM rota.kv o WHERE o.dir = i.dir AND o.name = i.name);
			END IF;
			IF 5 = ANY (these_kinds) OR 6 = ANY (these_kinds) THEN
				INSERT INTO rota.kv (dir, name, value, created, modified, written, owner, txn)
					SELECT i.dir, i.name, i.val, last, last, clock_timestamp(), CASE WHEN i.kind = 6 THEN i.session END, ids[t]
					FROM unnest(these_kinds, these_dirs, these_names, sessions[start:stop], vals[start:stop]) i (kind, dir, name, session, val)
					WHERE i.kind IN (5, 6);
			END IF;
			INSERT INTO rota.log (seq, dir, names)
				SELECT last, i.dir, array_agg(i.name) FROM unnest(these_kinds, these_dirs, these_names) i (kind, dir, name)
				WHERE i.kind > 4 GROUP BY i.dir;
		END IF;
		seq := last;
		RETURN NEXT;
	END LOOP;
	IF notify AND last > before THEN
		PERFORM rota.notify_dirs(ARRAY(SELECT l.dir FROM rota.log l WHERE l.seq > before));
	END IF;
END $$;
